/** The playground: an editor of a model, linked with the explorer of it, which is made anew after each edit. */

import "./playground.css";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, keymap, lineNumbers } from "@codemirror/view";
import { byId, make } from "./dom";
import { examples } from "./examples";
import { highlighting, python } from "./languages";
import { linkedProgram, linkOf } from "./program_link";

interface Settings {
  output_types: string[];
  output_type: string;
}

/** A line of the answer: a stage, or the outcome. */
interface Answer {
  stage?: string;
  message?: string;
  contents?: string | null;
}

const settings: Settings = JSON.parse(byId("settings").textContent!);
const PAUSE = 150; // ms after the last edit

const theme = EditorView.theme({
  "&": { fontSize: "13px" },
  ".cm-scroller": { fontFamily: "ui-monospace, monospace" },
  ".cm-gutters": { background: "var(--panel)", color: "var(--muted)", border: "none" },
});

/** Lines of the program with a class: linked with what is chosen in the explorer, or wrong. */
const marks = StateEffect.define<{ linked: number[]; wrong: number[] }>();
const marked = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(value, transaction) {
    value = value.map(transaction.changes);
    for (const effect of transaction.effects) {
      if (!effect.is(marks)) continue;
      const { doc } = transaction.state;
      const lines = [...effect.value.linked.map((each) => [each, "linked"] as const), ...effect.value.wrong.map((each) => [each, "wrong"] as const)];
      const ranges = lines.filter(([line]) => line >= 1 && line <= doc.lines)
        .map(([line, kind]) => Decoration.line({ class: kind }).range(doc.line(line).from));
      value = Decoration.set(ranges, true);
    }
    return value;
  },
  provide: (field) => EditorView.decorations.from(field),
});
const mark = (linked: number[], wrong: number[] = []) => editor.dispatch({ effects: marks.of({ linked, wrong }) });

const editor = new EditorView({
  parent: byId("editor"),
  extensions: [
    lineNumbers(),
    history(),
    keymap.of([{ key: "Mod-Enter", run: () => (void compile(), true) }, ...defaultKeymap, ...historyKeymap, indentWithTab]),
    python,
    highlighting,
    theme,
    marked,
    EditorView.cspNonce.of(document.querySelector("style")!.nonce),
    EditorView.contentAttributes.of({ "aria-label": "Python source", tabindex: "0" }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) later();
      else if (update.selectionSet) point();
    }),
  ],
});

/** An explorer: a frame whose code is loaded ahead, and that shows contents once. */
class Explorer {
  readonly frame = make("iframe", { name: "playground", title: "Explorer", sandbox: "allow-scripts", src: "explorer", hidden: "" });
  readonly ready = new Promise<void>((resolve) => {
    const receive = ({ source, data }: MessageEvent) => {
      if (source !== this.frame.contentWindow || !data?.ready) return;
      removeEventListener("message", receive);
      resolve();
    };
    addEventListener("message", receive);
  });

  constructor() {
    byId("result").append(this.frame);
  }

  show(contents: string): void {
    this.frame.id = "page";
    this.frame.hidden = false;
    this.post({ contents });
  }

  post(message: object): void {
    this.frame.contentWindow?.postMessage(message, "*"); // its origin is opaque
  }
}
let shown: Explorer | null = null;
let next: Explorer | null = null;
const select = byId("output-type") as HTMLSelectElement;
settings.output_types.forEach((value) => select.append(make("option", { value }, value)));
select.value = settings.output_type;
const example = byId("example") as HTMLSelectElement;
Object.keys(examples).forEach((value) => example.append(make("option", { value }, value)));

const source = (): string => editor.state.doc.toString();
let timer = 0;
let running: AbortController | null = null;

const replace = (text: string) => editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text } });

function later(): void {
  running?.abort();
  stale(true);
  next ??= new Explorer();
  clearTimeout(timer);
  timer = setTimeout(compile, PAUSE);
}

const stale = (is: boolean) => byId("result").classList.toggle("stale", is);

/** Compile what is in the editor; what runs is cancelled. */
async function compile(): Promise<void> {
  clearTimeout(timer);
  running?.abort();
  const own = (running = new AbortController());
  const started = performance.now();
  const seconds = () => `${((performance.now() - started) / 1000).toFixed(1)} s`;
  const status = (text: string) => (byId("status").textContent = text);
  const progress = (stage: string) => status(`${stage === "start" ? "starting" : stage} … ${seconds()}`);
  byId("cancel").hidden = false;
  stale(true);
  next ??= new Explorer();
  progress("start");
  try {
    const body = JSON.stringify({ source: source(), output_type: select.value });
    const answer = await fetch("compile", { method: "POST", body, signal: own.signal });
    if (!answer.ok) throw new Error(await answer.text());
    for await (const line of linesOf(answer.body!)) {
      if (line.stage !== undefined) progress(line.stage);
      else {
        await show(line.message ?? "", line.contents ?? null, own.signal);
        status(seconds());
      }
    }
  } catch (error) {
    if (own.signal.aborted) {
      if (running === own) status("cancelled");
      return;
    }
    await show(String(error), null, own.signal);
    status("");
  } finally {
    if (running === own) {
      running = null;
      byId("cancel").hidden = true;
    }
  }
}

async function* linesOf(body: ReadableStream<Uint8Array>): AsyncGenerator<Answer> {
  const [reader, decoder] = [body.getReader(), new TextDecoder()];
  for (let text = ""; ; ) {
    const { value, done } = await reader.read();
    text += decoder.decode(value, { stream: !done });
    const lines = text.split("\n");
    text = lines.pop()!;
    for (const line of lines) yield JSON.parse(line);
    if (done) return;
  }
}

/** Show the explorer. An error of the program leaves the last one, dimmed. */
async function show(message: string, contents: string | null, signal: AbortSignal): Promise<void> {
  byId("message").hidden = !message || contents !== null; // the explorer has its own
  byId("message").textContent = message;
  const line = Number(/playground_model\.py(?::|, line )(\d+)/.exec(message)?.[1]);
  mark([], line ? [line] : []);
  if (contents === null) return;
  const explorer = (next ??= new Explorer());
  await explorer.ready;
  signal.throwIfAborted();
  shown?.frame.remove();
  explorer.show(contents);
  [shown, next] = [explorer, null];
  stale(false);
}

/** Link the line of the cursor in the explorer. */
function point(): void {
  const { number } = editor.state.doc.lineAt(editor.state.selection.main.head);
  shown?.post({ line: number });
}

addEventListener("message", ({ source: from, data }) => {
  if (from !== shown?.frame.contentWindow || !Array.isArray(data?.lines)) return;
  const lines = (data.lines as unknown[]).filter((each): each is [number, boolean] => Array.isArray(each) && typeof each[0] === "number");
  mark(lines.map(([line]) => line));
  const inner = lines.find(([line, isInner]) => isInner && line <= editor.state.doc.lines);
  if (inner && !editor.hasFocus) editor.dispatch({ effects: EditorView.scrollIntoView(editor.state.doc.line(inner[0]).from, { y: "nearest", yMargin: 40 }) });
});

select.addEventListener("change", compile);
example.addEventListener("change", () => {
  replace(examples[example.value]!);
  void compile();
});
byId("cancel").addEventListener("click", () => running?.abort());
byId("link").addEventListener("click", async () => {
  location.hash = await linkOf(source(), select.value);
  try {
    await navigator.clipboard.writeText(location.href);
    byId("status").textContent = "the address is copied";
  } catch {
    byId("status").textContent = "the address holds the program";
  }
});

async function start(): Promise<void> {
  const linked = await linkedProgram(location.hash);
  if (linked && settings.output_types.includes(linked.outputType)) select.value = linked.outputType;
  replace(linked?.source ?? Object.values(examples)[0]!);
  if (linked) example.selectedIndex = -1;
  void compile();
}
void start();
