/** Tables above the panes: stages, operations, constants, functions, refused operators, comparisons with eager. */

import { changesOf } from "./changes";
import { type Counts, data, type Place, readableBytes, shortPaths } from "./contents";
import { make, numeric, table } from "./dom";
import { panes } from "./panes";
import { showPlace } from "./places";
import { searchFor } from "./search";

const total = (counts: Counts | null): number => Object.values(counts ?? {}).reduce((sum, each) => sum + each, 0);

/** Say how the counts of operations differ: "+4 tosa.add, −4 torch.aten.add.Tensor". */
function changedCounts(before: Counts | null, after: Counts | null): string {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  const rows = [...names].map((name) => [name, (after?.[name] ?? 0) - (before?.[name] ?? 0)] as const);
  const real = rows.filter((each) => each[1]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const shown = real.slice(0, 6).map(([name, by]) => `${by > 0 ? "+" : "−"}${Math.abs(by)} ${name}`);
  return shown.join(", ") + (real.length > 6 ? `, … ${real.length - 6} more kinds` : "");
}

/** A button that shows what a stage changed in the text, where it is known and of the same kind. */
function changesButton(before: number | null, after: number): Node | string {
  const kinds = [before === null ? null : data.views[before]!.kind, data.views[after]!.kind];
  if (before === null) return "";
  if (before === after) return make("span", { class: "muted" }, "none");
  if (kinds[0] !== kinds[1]) return make("span", { class: "muted" }, "another form");
  const { added, removed } = changesOf(before, after);
  const open = () => panes.all[panes.all.length - 1]!.show(`${after}-changes`);
  return make("button", { class: "changes", onclick: open }, `+${added} −${removed} lines`);
}

export function stages(): HTMLElement {
  const all = data.stages.reduce((sum, each) => sum + each.seconds, 0) || 1;
  let last: (typeof data.stages)[number] | null = null;
  const rows = data.stages.map((stage) => {
    const view = stage.view;
    const same = last && view !== null && data.views[last.view!]!.kind === data.views[view]!.kind;
    const share = make("span", { class: "share" });
    share.style.width = `${(stage.seconds / all) * 8}em`;
    const name = view === null ? stage.name : make("button", { onclick: () => show(view) }, stage.name);
    const counts = stage.operations ? changedCounts(same ? last!.operations : null, stage.operations) : "";
    const changes = view === null ? "" : changesButton(last && last.view, view);
    if (view !== null) last = stage;
    return make(
      "tr",
      stage.outcome === "failed" ? { class: "bad" } : {},
      make("td", {}, name),
      numeric(`${stage.seconds.toFixed(3)} s`),
      make("td", {}, share),
      numeric(stage.operations ? total(stage.operations).toLocaleString("en") : stage.outcome),
      make("td", {}, changes),
      make("td", {}, [counts, ...stage.remarks].filter(Boolean).join("; ")),
    );
  });
  data.not_reached.forEach((name) =>
    rows.push(make("tr", { class: "muted" }, make("td", {}, name), make("td", {}, "not reached"))),
  );
  return table(["stage", "time", "share", "operations", "changes", "counts"], rows);
}

function show(view: number): void {
  panes.all[panes.all.length - 1]!.show(String(view));
}

export function operations(): HTMLElement {
  const counted = data.stages.filter((each) => each.operations && each.view !== null);
  const columns = counted.filter((each, at) => at === counted.length - 1 || each.view !== counted[at + 1]!.view);
  const names = new Map<string, number>();
  [...columns].reverse().forEach((each) => Object.entries(each.operations!).forEach(([name, count]) => {
    if (!names.has(name)) names.set(name, count);
  }));
  const rows = [...names.keys()].map((name) =>
    make(
      "tr",
      {},
      make("td", {}, make("button", { onclick: () => searchFor(name) }, name)),
      ...columns.map((each) => numeric(each.operations![name]?.toLocaleString("en") ?? "")),
    ),
  );
  return table(["operation", ...columns.map((each) => each.name)], rows);
}

export function constants(): HTMLElement {
  const most = Math.max(...data.constants.map((each) => each.nbytes), 1);
  const rows = data.constants.slice(0, 500).map((each) => {
    const size = make("span", { class: "share" });
    size.style.width = `${(each.nbytes / most) * 8}em`;
    const name = each.name ? make("button", { onclick: () => searchFor(each.name) }, each.name) : "(a literal)";
    const place = each.in_module ? "in the module" : "outside of the module";
    return make("tr", {}, numeric(readableBytes(each.nbytes)), make("td", {}, size), make("td", {}, name),
      make("td", {}, each.type), make("td", {}, place));
  });
  const left = data.constants.length - rows.length;
  return make("div", {}, table(["size", "share", "name", "type", "place"], rows), left > 0 ? `… ${left} more` : "");
}

export const functions = (): HTMLElement =>
  make("pre", {}, Object.entries(data.functions).map(([name, type]) => name + type).join("\n"));

/** Buttons that show the source lines of places. */
function placeButtons(places: Place[]): Node[] {
  const named = new Map<string, Node>();
  for (const { file, line, module } of places) {
    if (file === null || line === null || !panes.get("source")) continue;
    const text = `${shortPaths[file]}:${line}${module ? ` in ${module}` : ""}`;
    named.set(text, make("button", { onclick: () => showPlace(file, line) }, text));
  }
  return [...named.values()];
}

export function problems(): HTMLElement {
  const listed = data.problems.map(({ title, stage, reason, places, suggestions }) =>
    make(
      "div",
      {},
      make("pre", { class: "bad" }, title),
      make("pre", {}, `${stage ? `${stage}: ` : ""}${reason}`),
      ...placeButtons(places),
      ...suggestions.map((each) => make("pre", {}, `try: ${each}`)),
    ),
  );
  return make("div", {}, ...(listed.length ? listed : [make("pre", { class: "bad" }, data.error ?? "")]));
}

export function checks(): HTMLElement {
  const figure = (value: number | null | undefined) => numeric(value == null ? "" : value.toPrecision(3));
  const rows = data.checks.map((each) =>
    make(
      "tr",
      each.status === "passed" || !each.required ? {} : { class: "bad" },
      make("td", {}, each.backend),
      make("td", {}, `${each.function}[${each.inputs}]`),
      make("td", {}, each.output ?? ""),
      make("td", {}, each.dtype ? `${each.dtype}[${(each.shape ?? []).join(", ")}]` : ""),
      figure(each.max_absolute),
      figure(each.max_relative),
      make("td", {}, each.status),
      make("td", {}, each.status === "passed" ? "" : each.detail),
    ),
  );
  const titles = ["backend", "call", "output", "type", "absolute", "relative", "verdict", "detail"];
  const found = data.divergences.map((each) =>
    make("div", {}, make("pre", { class: "bad" }, each.detail), ...placeButtons(each.places)),
  );
  return make("div", {}, ...(rows.length ? [table(titles, rows)] : []), ...found);
}
