/** The panes of the page: the Python source, and programs and modules after stages. */

import { changesOf } from "./changes";
import { data, moduleOf, shortPaths, type View, viewName, within } from "./contents";
import { byId, make, setAddress } from "./dom";
import { splitter } from "./splitter";
import { mlir, python } from "./languages";
import { type Choice, type Document, Pane, type PaneGroup } from "./pane";
import { continued, lineKey, link, refusedLines, selection, sitesAt } from "./selection";

class SourcePane extends Pane {
  /** Scroll to the innermost linked line, in the file on show if it has any. */
  reveal(): void {
    const keys = [...selection.lines].sort((a, b) => Number(b[1]) - Number(a[1])).map(([key]) => key);
    const key = keys.find((each) => each.startsWith(`${this.value}:`)) ?? keys[0];
    if (key === undefined) return;
    const [file, line] = key.split(":");
    if (file !== this.value) this.show(file!);
    this.scrollTo(Number(line) - 1);
  }
}

class ViewPane extends Pane {
  private readonly before = make("button", { class: "step", "aria-label": "Stage before", onclick: () => this.step(-1) }, "‹");
  private readonly after = make("button", { class: "step", "aria-label": "Stage after", onclick: () => this.step(1) }, "›");

  /** Add the buttons for the stages before and after. */
  withSteps(): this {
    this.select.before(this.before);
    this.select.after(this.after);
    return this;
  }

  show(value: string): void {
    super.show(value);
    const at = parseInt(this.value);
    this.before.disabled = at <= 0;
    this.after.disabled = at >= data.views.length - 1;
  }

  private step(by: number): void {
    this.show(String(parseInt(this.value) + by));
  }

  reveal(): void {
    const row = this.document.linkedRow();
    if (row >= 0) this.scrollTo(row);
  }
}

function sourceDocument(file: number): Document {
  const key = (row: number) => lineKey(file, row + 1);
  return {
    lines: data.files[file]!.lines ?? ["(the source is not available)"],
    language: python,
    sitesOf: (row) => sitesAt.get(key(row)) ?? [],
    titleOf: () => "",
    linkedRow: () => -1,
    classes: (row) => [
      ...(selection.lines.has(key(row)) || continues(key(row)) ? ["linked"] : []),
      ...(refusedLines.has(key(row)) ? ["refused"] : []),
    ],
  };
}

/** Whether a line continues a statement of which something is linked. */
const continues = (key: string): boolean =>
  continued.has(key) && [...sitesAt.get(key)!].some((each) => selection.sites.has(each));

/** Say which submodules and source lines sites are. */
function titleOf(sites: number[]): string {
  return sites
    .slice(0, 4)
    .map((each) => data.sites[each]!)
    .map(({ module, frames: [frame] }) => [module, frame ? `${shortPaths[frame[0]]}:${frame[1]}` : ""])
    .map((each) => each.filter(Boolean).join(" at "))
    .join("\n");
}

export function viewDocument(index: number): Document {
  const view = data.views[index]!;
  const refused = new Set(view.refused);
  const sitesOf = (row: number) => data.site_sets[view.site_sets[row]!] ?? [];
  const first = view.nodes.find(([, name]) => !data.node_names[name]!.startsWith("input "));
  const folded = constantRuns(view);
  const unfolded = folded.reduce((rows, [from, to]) => rows - (first && to < first[0] ? to - from : 0), first?.[0] ?? 0);
  return {
    lines: view.lines,
    language: mlir,
    folded,
    start: first && unfolded > MOST_BEFORE ? first[0] : 0,
    sitesOf,
    titleOf: (row) => titleOf(sitesOf(row)),
    linkedRow: () => {
      const sets = data.site_sets.map((each) => each.some((site) => selection.sites.has(site)));
      const node = view.nodes.find(([line]) => sets[view.site_sets[line]!]); // rather than a constant that it uses
      return node ? node[0] : view.site_sets.findIndex((set) => sets[set]);
    },
    classes: (row) => [
      ...(sitesOf(row).some((each) => selection.sites.has(each)) ? ["linked"] : []),
      ...(refused.has(row) ? ["refused"] : []),
    ],
  };
}

/** Lines before the first operation that are in sight at first. */
const MOST_BEFORE = 8;

const CONSTANT = /^\s*%[\w#:]+ = (?:placeholder |get_attr |"?[\w.]*(?:constant|literal|tosa\.const|const_shape)\b)/;

/** Runs of lines that only make constants or take weights. */
function constantRuns(view: View): [number, number][] {
  const inputs = new Set(view.nodes.filter(([, name]) => data.node_names[name]!.startsWith("input ")).map(([line]) => line));
  const runs: [number, number][] = [];
  view.lines.forEach((line, row) => {
    if (!CONSTANT.test(line) || inputs.has(row)) return;
    const run = runs[runs.length - 1];
    if (run && run[1] === row - 1) run[1] = row;
    else runs.push([row, row]);
  });
  return runs.filter(([first, last]) => last - first > 1);
}

/** The lines of two views, with those that only one has marked, and runs of the others folded. */
function changesDocument(before: number, after: number): Document {
  const documents = [viewDocument(before), viewDocument(after)] as const;
  const { rows, folded } = changesOf(before, after);
  const of = (row: number) => documents[rows[row]!.sign === "-" ? 0 : 1];
  return {
    lines: rows.map(({ text }) => text),
    language: mlir,
    folded,
    sitesOf: (row) => of(row).sitesOf(rows[row]!.line),
    titleOf: (row) => of(row).titleOf(rows[row]!.line),
    margin: (row) => (rows[row] ? `${rows[row].line + 1} ${rows[row].sign}` : ""),
    linkedRow: () => rows.findIndex((each, row) => each.sign !== " " && of(row).classes(each.line).includes("linked")),
    classes: (row) => [
      ...of(row).classes(rows[row]!.line),
      ...({ "+": ["added"], "-": ["removed"], " ": [] }[rows[row]!.sign] ?? []),
    ],
  };
}

const views: Choice[] = data.views.flatMap((_, index) => [
  { value: String(index), text: viewName(index), open: () => viewDocument(index) },
  ...(index && data.views[index - 1]!.kind === data.views[index]!.kind
    ? [{ value: `${index}-changes`, text: `changes ${viewName(index)}`, open: () => changesDocument(index - 1, index) }]
    : []),
]);
const sources: Choice[] = data.files.map((_, index) => ({
  value: String(index),
  text: shortPaths[index]!,
  open: () => sourceDocument(index),
}));

class Panes implements PaneGroup {
  readonly all: Pane[] = [];
  private foldedTo: string | null = null;
  /** Called after a pane shows another document. */
  onShow: () => void = () => {};

  open(): void {
    const last = data.views.length - 1;
    const imported = Math.max(0, data.views.findIndex((each) => each.kind === "mlir"));
    const readable = data.files.some((each) => each.lines !== null);
    if (sources.length) this.all.push(new SourcePane("source", "Source", "Python source", sources, this));
    if (last > 0) this.all.push(new ViewPane("first", "Stage", "An earlier stage", views, this).withSteps());
    if (last >= 0) this.all.push(new ViewPane("last", "Result", "The result", views, this).withSteps());
    for (const pane of this.all) {
      byId("panes").append(...(pane === this.all[0] ? [] : [splitter()]), pane.element);
      pane.element.hidden = pane.name === "source" ? !readable : pane.name === "first" && readable;
    }
    const at: Record<string, number> = { source: 0, first: imported === last ? 0 : imported, last };
    this.all.forEach((pane) => pane.show(String(at[pane.name])));
    this.resize();
  }

  get visible(): Pane[] {
    return this.all.filter((each) => !each.element.hidden);
  }

  get(name: string): Pane | undefined {
    return this.all.find((each) => each.name === name);
  }

  toggle(pane: Pane): void {
    pane.element.hidden = !pane.element.hidden;
    this.resize();
  }

  /** Show a splitter between each two visible panes, and a button for each hidden one. */
  private resize(): void {
    const shown = this.visible;
    byId("panes").querySelectorAll<HTMLElement>(".splitter").forEach((each) => {
      each.hidden = !shown.some((pane) => pane.element === each.nextElementSibling && pane !== shown[0]);
    });
    const texts: Record<string, string> = { source: "Show the source", first: "Compare with another stage", last: "Show the result" };
    const hidden = this.all.filter((each) => each.element.hidden);
    byId("hidden-panes").replaceChildren(
      ...hidden.map((each) => make("button", { onclick: () => this.toggle(each) }, texts[each.name]!)),
    );
  }

  choose(pane: Pane, row: number, remember: boolean): void {
    this.all.forEach((each) => (each.chosen = -1));
    pane.chosen = row;
    link(pane.document.sitesOf(row));
    this.all.filter((each) => each !== pane).forEach((each) => each.reveal());
    this.redraw();
    if (remember) setAddress(`${pane.name}/${pane.value}/${row + 1}`);
  }

  /** Link what came from `sites`, and scroll to it in all panes. */
  reveal(sites: Iterable<number>): void {
    this.all.forEach((each) => (each.chosen = -1));
    link(sites);
    this.all.forEach((each) => each.reveal());
    this.redraw();
  }

  point(sites: Iterable<number>): void {
    selection.pointed = new Set(sites);
    this.redraw();
  }

  focus(pane: Pane, by: number): boolean {
    this.visible[this.visible.indexOf(pane) + by]?.focus();
    return true;
  }

  shown(_: Pane): void {
    this.onShow();
  }

  /** Fold the lines of views that came from outside of a submodule; null unfolds. */
  foldTo(module: string | null): void {
    if (module === this.foldedTo) return;
    this.foldedTo = module;
    for (const pane of this.all) {
      const view = data.views[Number(pane.value)]; // not of a source, nor of changes
      if (pane.name === "source" || !view) continue;
      const runs: [number, number][] = [];
      view.lines.forEach((_, row) => {
        const path = module === null ? "" : moduleOf(view, row);
        if (module === null || (path !== null && within(path, module))) return;
        const run = runs[runs.length - 1];
        if (run && run[1] === row - 1) run[1] = row;
        else runs.push([row, row]);
      });
      pane.fold(module === null ? (pane.document.folded ?? []) : runs);
    }
  }

  redraw(): void {
    this.all.forEach((each) => each.redraw());
  }
}

export const panes = new Panes();
