/** The tree of submodules, by which the views are folded. */

import { data, moduleOf, within } from "./contents";
import { make, setAddress } from "./dom";
import { panes } from "./panes";

/** A submodule with its submodules, and the numbers of its operations in the first and the last view. */
interface Submodule {
  name: string;
  path: string;
  children: Map<string, Submodule>;
  counts: [number, number];
}

function tree(): Submodule {
  const root: Submodule = { name: data.modules[""] || data.title, path: "", children: new Map(), counts: [0, 0] };
  const ends = [data.views[0], data.views[data.views.length - 1]];
  ends.forEach((view, end) => {
    for (const [line] of view?.nodes ?? []) {
      let at = root;
      at.counts[end as 0 | 1]++;
      for (const name of (moduleOf(view!, line) ?? "").split(".").filter(Boolean)) {
        const path = at.path ? `${at.path}.${name}` : name;
        if (!at.children.has(name)) at.children.set(name, { name, path, children: new Map(), counts: [0, 0] });
        at = at.children.get(name)!;
        at.counts[end as 0 | 1]++;
      }
    }
  });
  return root;
}

/** Link what came from a submodule, and fold the rest of the views. */
export function foldTo(path: string): void {
  const sites = data.sites.flatMap(({ module }, number) => (within(module ?? "", path) ? [number] : []));
  panes.foldTo(path || null);
  panes.reveal(path ? sites : []);
  setAddress(path && `module/${path}`);
}

function item(module: Submodule, open: boolean): HTMLElement {
  const kind = module.path ? data.modules[module.path] : "";
  const label = make("button", { onclick: () => foldTo(module.path) }, module.name);
  const counts = make("span", { class: "muted" }, `${kind ? `${kind}, ` : ""}${module.counts.join(" → ")} operations`);
  const children = make("div", { class: "children" });
  const element = make("div", {}, label, counts);
  if (!module.children.size) return element;
  const sign = make("button", { class: "sign", "aria-label": `Submodules of ${module.path || module.name}` });
  const toggle = (shown: boolean) => {
    if (shown && !children.childElementCount)
      children.append(...[...module.children.values()].map((each) => item(each, module.children.size === 1)));
    children.hidden = !shown;
    sign.textContent = shown ? "▾" : "▸";
    sign.setAttribute("aria-expanded", String(shown));
  };
  sign.addEventListener("click", () => toggle(children.hidden === true));
  toggle(open);
  element.prepend(sign);
  element.append(children);
  return element;
}

export function modules(): HTMLElement {
  const reset = make("button", { onclick: () => foldTo("") }, "Unfold all");
  const hint = make("p", { class: "muted" }, "Choose a submodule to fold everything else in the views. ", reset);
  return make("div", { class: "modules" }, hint, item(tree(), true));
}
