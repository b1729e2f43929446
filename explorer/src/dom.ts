/** Making of elements. Strings are text, never HTML. */

type Listener = (event: any) => void;
type Attributes = Record<string, string | number | Listener>;

function fill<E extends Element>(element: E, attributes: Attributes, children: (Node | string | number)[]): E {
  for (const [name, value] of Object.entries(attributes))
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, String(value));
  element.append(...children.map((each) => (each instanceof Node ? each : String(each))));
  return element;
}

export const make = <T extends keyof HTMLElementTagNameMap>(
  tag: T,
  attributes: Attributes = {},
  ...children: (Node | string | number)[]
): HTMLElementTagNameMap[T] => fill(document.createElement(tag), attributes, children);

export const draw = <T extends keyof SVGElementTagNameMap>(
  tag: T,
  attributes: Attributes = {},
  ...children: (Node | string | number)[]
): SVGElementTagNameMap[T] => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

export const byId = (name: string): HTMLElement => document.getElementById(name)!;

export const table = (titles: string[], rows: HTMLTableRowElement[]): HTMLTableElement =>
  make(
    "table",
    {},
    make("thead", {}, make("tr", {}, ...titles.map((each) => make("th", { scope: "col" }, each)))),
    make("tbody", {}, ...rows),
  );

export const numeric = (text: string): HTMLTableCellElement => make("td", { class: "number" }, text);

/** Let the address name a place, or none; within a notebook's cell too, where "#place" alone is relative to the notebook. */
export const setAddress = (place: string): void =>
  history.replaceState(null, "", location.href.split("#")[0] + (place && `#${place}`));
