/** What single passes changed: a list of passes, and the text before and after the chosen one, side by side. */

import { data, type Hunk, type PassChange } from "./contents";
import { make } from "./dom";

/** The name of a pass: "func.func(canonicalize{top-down=true})" is "canonicalize". */
const passName = (text: string): string => /^(?:[\w.]+\()*([\w-]+)/.exec(text)?.[1] ?? text;

const count = (of: PassChange, sign: string): number =>
  of.hunks.reduce((sum, [, , rows]) => sum + rows.filter((each) => each[0] === sign).length, 0);

const cell = (kind: string, row: number, text: string): HTMLElement =>
  make("div", { class: `cell ${kind}` }, make("span", { class: "row-number" }, kind === "nothing" ? "" : String(row + 1)), make("code", {}, text));

/** Rows of a hunk in two columns: removed and added lines next to each other. */
function columns([before, after, rows]: Hunk): HTMLElement[] {
  const cells: HTMLElement[] = [];
  let [left, right] = [before, after];
  let removed: string[] = [];
  let added: string[] = [];
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at++) {
      cells.push(at < removed.length ? cell("removed", left++, removed[at]!) : cell("nothing", 0, ""));
      cells.push(at < added.length ? cell("added", right++, added[at]!) : cell("nothing", 0, ""));
    }
    [removed, added] = [[], []];
  };
  for (const row of rows) {
    const text = row.slice(1);
    if (row[0] === "-") removed.push(text);
    else if (row[0] === "+") added.push(text);
    else {
      flush();
      cells.push(cell("same", left++, text), cell("same", right++, text));
    }
  }
  flush();
  return cells;
}

export const passesWithEffect = (): number => (data.passes ?? []).filter((each) => each.hunks.length).length;

export function passes(): HTMLElement {
  const all = data.passes ?? [];
  const diff = make("div", { class: "diff", tabindex: "0", role: "region", "aria-label": "Before and after the pass" });
  const list = make("div", { class: "pass-list" });
  const buttons = new Map<PassChange, HTMLButtonElement>();
  const choose = (pass: PassChange) => {
    buttons.forEach((button, each) => button.setAttribute("aria-pressed", String(each === pass)));
    const parts = pass.hunks.map((hunk) => make("div", { class: "hunk" }, ...columns(hunk)));
    const title = make("p", { class: "pass-title" }, make("code", {}, pass.name), ` in ${data.stages[pass.stage]?.name ?? ""}, ${pass.operations.toLocaleString("en")} operations after it`);
    diff.replaceChildren(title, ...(parts.length ? parts : [make("p", { class: "muted" }, "It changed nothing.")]));
    diff.scrollTop = 0;
  };
  const fill = (everything: boolean) => {
    buttons.clear();
    const rows: Node[] = [];
    let stage = -1;
    for (const pass of all) {
      if (!everything && !pass.hunks.length) continue;
      if (pass.stage !== stage) rows.push(make("h3", {}, data.stages[pass.stage]?.name ?? ""));
      stage = pass.stage;
      const size = pass.hunks.length ? `+${count(pass, "+")} −${count(pass, "-")}` : "";
      const button = make("button", { "aria-pressed": "false", title: pass.name, onclick: () => choose(pass) },
        make("span", {}, passName(pass.name)), make("span", { class: "muted" }, size));
      buttons.set(pass, button);
      rows.push(button);
    }
    list.replaceChildren(...rows);
  };
  const without = all.length - passesWithEffect();
  const box = make("input", { type: "checkbox", onchange: () => fill(box.checked) });
  const label = make("label", { class: "muted" }, box, ` ${without} passes without effect`);
  fill(false);
  const first = all.find((each) => each.hunks.length) ?? all[0];
  if (first) choose(first);
  return make("div", { class: "passes" }, make("div", { class: "pass-side" }, label, list), diff);
}
