/** The playground: an editor of a model, whose explorer is shown after each edit. */

import "./playground.css";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { EditorView, keymap, lineNumbers } from "@codemirror/view";
import { byId, make } from "./dom";
import { highlighting, python } from "./languages";

interface Settings {
  source: string;
  output_types: string[];
  output_type: string;
}

const settings: Settings = JSON.parse(byId("settings").textContent!);
const PAUSE = 800; // ms after the last edit

const theme = EditorView.theme({
  "&": { fontSize: "12px" },
  ".cm-scroller": { fontFamily: "ui-monospace, monospace" },
  ".cm-gutters": { background: "var(--panel)", color: "var(--muted)", border: "none" },
});

const editor = new EditorView({
  doc: settings.source,
  parent: byId("editor"),
  extensions: [
    lineNumbers(),
    history(),
    keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]),
    python,
    highlighting,
    theme,
    EditorView.cspNonce.of(document.querySelector("style")!.nonce),
    EditorView.contentAttributes.of({ "aria-label": "Python source", tabindex: "0" }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) later();
    }),
  ],
});

const select = byId("output-type") as HTMLSelectElement;
settings.output_types.forEach((value) => select.append(make("option", { value }, value)));
select.value = settings.output_type;

let timer = 0;
let running = false;
let again = false;

function later(): void {
  clearTimeout(timer);
  timer = setTimeout(compile, PAUSE);
}

/** Compile what is in the editor; once more if it has changed meanwhile. */
async function compile(): Promise<void> {
  again = running;
  if (running) return;
  running = true;
  byId("status").textContent = "compiling …";
  const started = performance.now();
  try {
    const body = JSON.stringify({ source: editor.state.doc.toString(), output_type: select.value });
    const answer = await fetch("compile", { method: "POST", body });
    if (!answer.ok) throw new Error(await answer.text());
    show(await answer.json());
    byId("status").textContent = `${((performance.now() - started) / 1000).toFixed(1)} s`;
  } catch (error) {
    show({ message: String(error), page: null });
    byId("status").textContent = "";
  }
  running = false;
  if (again) void compile();
}

function show({ message, page }: { message: string; page: string | null }): void {
  byId("message").hidden = !message || page !== null; // the explorer has its own
  byId("message").textContent = message;
  const frame = byId("page") as HTMLIFrameElement;
  frame.hidden = page === null;
  if (page !== null) frame.src = page;
}

select.addEventListener("change", compile);
byId("compile").addEventListener("click", compile);
void compile();
