/** The panes of the page: the Python source, and programs and modules after stages. */

import { changesOf } from "./changes";
import { data, moduleOf, shortPaths, viewName, within } from "./contents";
import { byId, make, setAddress } from "./dom";
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
  return {
    lines: view.lines,
    language: mlir,
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
  /** Called after a pane shows another document. */
  onShow: () => void = () => {};

  open(): void {
    const last = data.views.length - 1;
    const imported = data.views.findIndex((each) => each.kind === "mlir");
    const shown = [...new Set([0, imported, last])].filter((each) => each >= 0 && each <= last);
    if (sources.length) this.all.push(new SourcePane("source", "Python source", sources, this));
    const labels = ["An early stage", "A middle stage", "A late stage"].slice(-Math.max(shown.length, 1));
    const names = ["first", "middle", "last"].slice(-Math.max(shown.length, 1));
    if (last >= 0) shown.forEach((_, at) => this.all.push(new ViewPane(names[at]!, labels[at]!, views, this)));
    byId("panes").append(...this.all.map((each) => each.element));
    this.all.forEach((pane, at) => pane.show(pane.name === "source" ? "0" : String(shown[at - (sources.length ? 1 : 0)])));
    byId("hidden-panes").replaceChildren();
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
    const hidden = this.all.filter((each) => each.element.hidden);
    byId("hidden-panes").replaceChildren(
      ...hidden.map((each) => make("button", { onclick: () => this.toggle(each) }, `Show ${each.label}`)),
    );
    this.resize();
  }

  private resize(): void {
    byId("panes").style.setProperty("--panes", String(this.visible.length));
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
      pane.fold(runs);
    }
  }

  redraw(): void {
    this.all.forEach((each) => each.redraw());
  }
}

export const panes = new Panes();
