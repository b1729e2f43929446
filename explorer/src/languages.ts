/** Highlighting of Python, MLIR and FX graphs. */

import { HighlightStyle, StreamLanguage, type StringStream, syntaxHighlighting } from "@codemirror/language";
import { python as pythonMode } from "@codemirror/legacy-modes/mode/python";
import { tags } from "@lezer/highlight";

export const python = StreamLanguage.define(pythonMode);

export const mlir = StreamLanguage.define({
  name: "mlir",
  token(stream: StringStream): string | null {
    if (stream.eatSpace()) return null;
    if (stream.match("//")) {
      stream.skipToEnd();
      return "comment";
    }
    if (stream.match(/^"(?:[^"\\]|\\.)*"/)) return "string";
    if (stream.match(/^[%^@#!][\w.$#-]+/)) return "variableName";
    if (stream.match(/^-?\d[\d.]*(?:e[+-]?\d+)?(?![x\w])/)) return "number";
    if (stream.match(/^(?:tensor|memref|vector|tuple|index|none|i\d+|[su]i\d+|b?f\d+\w*)\b/)) return "typeName";
    if (stream.match(/^[a-z_]\w*(?:\.[\w$]+)+/i)) return "keyword";
    if (stream.match(/^(?:module|return|dense|true|false|loc)\b/)) return "atom";
    if (!stream.match(/^\w+/)) stream.next();
    return null;
  },
});

export const highlighting = syntaxHighlighting(
  HighlightStyle.define([
    { tag: tags.comment, color: "var(--comment)" },
    { tag: tags.string, color: "var(--string)" },
    { tag: tags.number, color: "var(--number)" },
    { tag: [tags.keyword, tags.atom], color: "var(--keyword)" },
    { tag: tags.typeName, color: "var(--type)" },
  ]),
);
