/** A pane: a code view of one of several documents, whose lines can be chosen and are linked by their sites. */

import { codeFolding, foldEffect, foldGutter, foldKeymap, type StreamLanguage, unfoldAll } from "@codemirror/language";
import { EditorState, type Range, StateEffect, Text } from "@codemirror/state";
import {
  Decoration,
  type DecorationSet,
  EditorView,
  keymap,
  lineNumbers,
  ViewPlugin,
  type ViewUpdate,
} from "@codemirror/view";
import { make } from "./dom";
import { highlighting } from "./languages";
import { selection } from "./selection";

/** Lines of text, each with the numbers of its sites. Rows count from 0. */
export interface Document {
  lines: string[];
  language: StreamLanguage<unknown>;
  sitesOf(row: number): Iterable<number>;
  classes(row: number): string[];
  titleOf(row: number): string;
  /** The first row to show for the linked sites; -1 for none. */
  linkedRow(): number;
  /** What the margin shows instead of the number of the row. */
  margin?(row: number): string;
  /** Runs of rows that are folded at first: first and last. */
  folded?: [number, number][];
  /** The row at the top at first. */
  start?: number;
}

export interface Choice {
  value: string;
  text: string;
  open(): Document;
}

const redraw = StateEffect.define<null>();

const theme = EditorView.theme({
  "&": { height: "100%", fontSize: "12px" },
  ".cm-scroller": { fontFamily: "ui-monospace, monospace", lineHeight: "18px" },
  ".cm-gutters": { background: "var(--panel)", color: "var(--muted)", border: "none" },
  ".cm-content": { padding: "0" },
  ".cm-line": { padding: "0 1em 0 4px" },
  ".cm-foldPlaceholder": { background: "var(--panel)", color: "var(--muted)", border: "1px solid var(--line)" },
  "&.cm-focused": { outline: "none" },
});

const nonce = document.querySelector("style")!.nonce;

export abstract class Pane {
  document!: Document;
  value = "";
  chosen = -1;
  found = new Set<number>();
  readonly element: HTMLElement;
  protected readonly select: HTMLSelectElement;
  protected readonly bar: HTMLElement;
  private readonly size = make("span", { class: "muted" });
  private readonly editor: EditorView;

  constructor(
    readonly name: string,
    title: string,
    readonly label: string,
    readonly choices: Choice[],
    private readonly group: PaneGroup,
  ) {
    this.select = make("select", { "aria-label": label, onchange: () => this.show(this.select.value) });
    choices.forEach(({ value, text }) => this.select.append(make("option", { value }, text)));
    const close = make("button", { class: "close", "aria-label": `Hide ${label}`, onclick: () => group.toggle(this) }, "×");
    const host = make("div", { class: "code" });
    this.bar = make("div", { class: "bar-top" }, make("strong", {}, title), this.select, this.size, close);
    this.element = make("section", { class: "pane", id: `pane-${name}`, "aria-label": label }, this.bar, host);
    this.editor = new EditorView({ parent: host, extensions: EditorView.cspNonce.of(nonce) });
    this.editor.contentDOM.addEventListener("click", (event) => {
      const row = this.rowAt(event);
      if (row !== null && !String(getSelection())) this.choose(row);
    });
    this.editor.contentDOM.addEventListener("mouseover", (event) => {
      const row = this.rowAt(event);
      if (row !== null) group.point(this.document.sitesOf(row));
    });
    host.addEventListener("mouseleave", () => group.point([]));
  }

  private rowAt(event: Event): number | null {
    const line = (event.target as Element).closest(".cm-line");
    return line ? this.editor.state.doc.lineAt(this.editor.posAtDOM(line)).number - 1 : null;
  }

  get count(): number {
    return this.document.lines.length;
  }

  show(value: string): void {
    const choice = this.choices.find((each) => each.value === value) ?? this.choices[0];
    if (!choice) return;
    this.value = this.select.value = choice.value;
    this.select.title = choice.text;
    this.chosen = -1;
    this.document = choice.open();
    const { margin, language, lines, folded, start } = this.document;
    this.size.textContent = `${lines.length.toLocaleString("en")} lines`;
    this.editor.setState(
      EditorState.create({
        doc: Text.of(lines.length ? lines : [""]),
        extensions: [
          lineNumbers(margin && { formatNumber: (number) => margin(number - 1) }),
          foldGutter({ openText: "▾", closedText: "▸" }),
          codeFolding({ placeholderText: "⋯" }),
          language,
          highlighting,
          theme,
          EditorView.cspNonce.of(nonce),
          EditorState.readOnly.of(true),
          EditorView.editable.of(false),
          EditorView.contentAttributes.of({ tabindex: "0", "aria-label": `${this.label}: ${choice.text}` }),
          keymap.of([...this.keys(), ...foldKeymap]),
          ViewPlugin.define((view) => new Lines(this, view), { decorations: (each) => each.decorations }),
        ],
      }),
    );
    this.fold(folded ?? []);
    if (start) this.scrollTo(start, "start");
    this.group.shown(this);
  }

  private keys() {
    const move = (by: (page: number) => number) => () => {
      const page = Math.max(1, Math.floor(this.editor.scrollDOM.clientHeight / this.editor.defaultLineHeight) - 1);
      const row = Math.min(this.count - 1, Math.max(0, this.chosen + by(page)));
      this.choose(row);
      this.scrollTo(row);
      return true;
    };
    return [
      { key: "ArrowDown", run: move(() => 1) },
      { key: "ArrowUp", run: move(() => -1) },
      { key: "PageDown", run: move((page) => page) },
      { key: "PageUp", run: move((page) => -page) },
      { key: "ArrowLeft", run: () => this.group.focus(this, -1) },
      { key: "ArrowRight", run: () => this.group.focus(this, 1) },
    ];
  }

  /** Fold runs of rows, and unfold all others. */
  fold(runs: [number, number][]): void {
    unfoldAll(this.editor);
    const { doc } = this.editor.state;
    const effects = runs
      .filter(([first, last]) => last > first)
      .map(([first, last]) => foldEffect.of({ from: doc.line(first + 1).to, to: doc.line(last + 1).to }));
    if (effects.length) this.editor.dispatch({ effects });
  }

  redraw(): void {
    this.editor.dispatch({ effects: redraw.of(null) });
  }

  scrollTo(row: number, y: "center" | "start" = "center"): void {
    const { from } = this.editor.state.doc.line(Math.min(row + 1, this.editor.state.doc.lines));
    this.editor.dispatch({ effects: EditorView.scrollIntoView(from, { y, yMargin: y === "start" ? 0 : 5 }) });
  }

  focus(): void {
    this.editor.focus();
  }

  choose(row: number, remember = true): void {
    this.group.choose(this, row, remember);
  }

  /** Scroll to what is linked. */
  abstract reveal(): void;
}

/** What panes need of each other. */
export interface PaneGroup {
  choose(pane: Pane, row: number, remember: boolean): void;
  point(sites: Iterable<number>): void;
  focus(pane: Pane, by: number): boolean;
  shown(pane: Pane): void;
  toggle(pane: Pane): void;
}

/** Classes and tooltips of the lines in sight. */
class Lines {
  decorations: DecorationSet;

  constructor(
    private readonly pane: Pane,
    view: EditorView,
  ) {
    this.decorations = this.decorate(view);
  }

  update(update: ViewUpdate): void {
    const asked = update.transactions.some((each) => each.effects.some((effect) => effect.is(redraw)));
    if (update.viewportChanged || asked) this.decorations = this.decorate(update.view);
  }

  private decorate(view: EditorView): DecorationSet {
    const found: Range<Decoration>[] = [];
    const { document, chosen, found: matches } = this.pane;
    for (const { from, to } of view.visibleRanges)
      for (let line = view.state.doc.lineAt(from); ; line = view.state.doc.line(line.number + 1)) {
        const row = line.number - 1;
        const sites = [...document.sitesOf(row)];
        const classes = ["row", ...document.classes(row)];
        if (!sites.length) classes.push("none");
        if (sites.some((each) => selection.pointed.has(each))) classes.push("pointed");
        if (matches.has(row)) classes.push("found");
        const attributes: Record<string, string> = { title: document.titleOf(row) };
        if (row === chosen) {
          classes.push("chosen");
          attributes["aria-current"] = "true";
        }
        found.push(Decoration.line({ class: classes.join(" "), attributes }).range(line.from));
        if (line.to >= to || line.number === view.state.doc.lines) break;
      }
    return Decoration.set(found, true);
  }
}
