/** The picture of a graph: groups that open and close, laid out by dagre level by level. */

import dagre from "@dagrejs/dagre";
import { data, viewName, within } from "./contents";
import { draw, make, setAddress } from "./dom";
import { groupDetails, operationDetails } from "./details";
import { type Group, type GraphModel, graphModel, type Item } from "./graph_model";
import { panes } from "./panes";
import { onLink, selection } from "./selection";
import { Viewport } from "./viewport";

const HEIGHT = 26;
const TITLE = 24;
const MARGIN = 12;

interface Placed {
  width: number;
  height: number;
  /** Item, and its corner in the group. */
  items: { item: Item; x: number; y: number; placed: Placed | null; width: number; height: number }[];
  edges: { points: { x: number; y: number }[]; count: number }[];
}

const labelOf = (item: Item): string =>
  item.kind === "group" ? `${item.label} · ${item.size.toLocaleString("en")}` : item.name.replace(/^torch\.aten\.|^aten\./, "aten.");

class Graph {
  readonly element: HTMLElement;
  private readonly host = make("div", { class: "graph-host", tabindex: "0", role: "region", "aria-label": "Graph" });
  private readonly aside = make("aside", { class: "details", "aria-label": "Details", tabindex: "0" });
  private readonly select: HTMLSelectElement;
  private readonly viewport: Viewport;
  private size = { width: 1, height: 1 };
  private model!: GraphModel;
  private readonly open = new Set<Group>();

  constructor() {
    this.select = make("select", { "aria-label": "Graph of", onchange: () => this.show(Number(this.select.value)) });
    data.views.forEach((view, index) => {
      if (view.nodes.length) this.select.append(make("option", { value: index }, viewName(index)));
    });
    this.viewport = new Viewport(this.host, () => this.host.querySelector<SVGGElement>(".picture"), () => this.size);
    const button = (text: string, label: string, run: () => void) => make("button", { "aria-label": label, title: label, onclick: run }, text);
    const bar = make("div", { class: "bar-top" }, this.select, button("+", "Zoom in", () => this.viewport.zoom(1.25)),
      button("−", "Zoom out", () => this.viewport.zoom(0.8)), button("Fit", "Fit the graph", () => this.viewport.fit()),
      button("Close all", "Close all groups", () => this.close()));
    this.element = make("div", { class: "graph" }, bar, make("div", { class: "graph-body" }, this.host, this.aside));
    onLink(() => this.mark());
    this.show(Number(this.select.value));
    new ResizeObserver(() => this.viewport.fit()).observe(this.host);
  }

  show(view: number): void {
    this.model = graphModel(view);
    this.select.value = String(view);
    this.aside.replaceChildren(make("p", { class: "muted" }, "Choose an operation for its types, its lines and its neighbours; a group to open it."));
    this.close();
  }

  private close(): void {
    this.open.clear();
    this.open.add(this.model.root);
    this.draw();
    this.viewport.fit();
  }

  /** Open the groups around a submodule, and the submodule. */
  openTo(path: string): void {
    const visit = (group: Group): void => {
      this.open.add(group);
      for (const each of group.items) if (each.kind === "group" && within(path, each.path.split("/")[0]!)) visit(each);
    };
    visit(this.model.root);
    this.draw();
    const shown = this.host.querySelector(`[data-path="${CSS.escape(path)}"] > .hit`);
    if (shown) this.viewport.reveal(shown);
  }

  private toggle(group: Group): void {
    if (!this.open.delete(group)) this.open.add(group);
    this.draw();
    const again = this.host.querySelector<SVGElement>(`[data-path="${CSS.escape(group.path)}"] > .hit`);
    again?.focus();
    if (again) this.viewport.reveal(again);
    this.aside.replaceChildren(groupDetails(group));
    setAddress(`graph/${this.model.view}/${group.path}`);
  }

  private place(group: Group): Placed {
    const graph = new dagre.graphlib.Graph();
    graph.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 26, marginx: MARGIN, marginy: MARGIN });
    const inner = new Map<Item, Placed | null>();
    group.items.forEach((item, index) => {
      const placed = item.kind === "group" && this.open.has(item) ? this.place(item) : null;
      inner.set(item, placed);
      const width = Math.max(placed?.width ?? 0, labelOf(item).length * 7.2 + 24);
      graph.setNode(String(index), { width, height: placed?.height ?? HEIGHT });
    });
    const numbers = new Map(group.items.map((item, index) => [item, String(index)]));
    for (const [from, targets] of this.model.edgesOf(group))
      for (const [to, count] of targets) graph.setEdge(numbers.get(from)!, numbers.get(to)!, { count });
    dagre.layout(graph);
    const size = graph.graph();
    return {
      width: size.width ?? 0,
      height: (size.height ?? 0) + TITLE,
      items: group.items.map((item) => {
        const { x, y, width, height } = graph.node(numbers.get(item)!);
        return { item, x: x - width / 2, y: y - height / 2 + TITLE, placed: inner.get(item)!, width, height };
      }),
      edges: graph.edges().map((each) => graph.edge(each)).map(({ points, count }) => ({
        points: points.map(({ x, y }: { x: number; y: number }) => ({ x, y: y + TITLE })),
        count,
      })),
    };
  }

  private draw(): void {
    const placed = this.place(this.model.root);
    this.size = { width: placed.width, height: placed.height };
    const arrow = draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7,
      orient: "auto-start-reverse" }, draw("path", { d: "M0,0L8,4L0,8z", class: "arrow" }));
    const picture = draw("g", { class: "picture" }, this.drawGroup(this.model.root, placed, 0, 0, 0));
    this.host.replaceChildren(draw("svg", {}, draw("defs", {}, arrow), picture));
    this.viewport.apply();
    this.mark();
  }

  private drawGroup(group: Group, placed: Placed, x: number, y: number, depth: number, width = placed.width): SVGGElement {
    const element = draw("g", { transform: `translate(${x},${y})`, class: "group", "data-path": group.path, "data-depth": depth },
      draw("rect", { class: `box depth-${depth % 2}`, width, height: placed.height, rx: 6 }),
      this.title(group, width, true));
    for (const { points, count } of placed.edges) {
      const path = points.map((each, at) => `${at ? "L" : "M"}${each.x.toFixed(1)},${each.y.toFixed(1)}`).join("");
      element.append(draw("path", { d: path, class: "edge", "marker-end": "url(#arrow)" },
        draw("title", {}, `${count} value${count > 1 ? "s" : ""}`)));
    }
    for (const each of placed.items) element.append(this.drawItem(each, depth));
    return element;
  }

  private drawItem({ item, x, y, placed, width, height }: Placed["items"][number], depth: number): SVGGElement {
    if (item.kind === "group" && placed) return this.drawGroup(item, placed, x, y, depth + 1, width);
    const path: Record<string, string> =
      item.kind === "group" ? { "data-path": item.path } : { "data-node": String(item.node) };
    const border = item.kind === "operation" && /^(input|output)\b/.test(item.name) ? " border" : "";
    return draw("g", { transform: `translate(${x},${y})`, class: item.kind === "group" ? "group closed" : `operation${border}`,
      "data-depth": depth + 1, ...path },
      draw("rect", { class: "box", width, height, rx: item.kind === "group" ? 6 : 12 }), this.title(item, width, false));
  }

  /** The text of an item, which is its button. */
  private title(item: Item, width: number, open: boolean): SVGGElement {
    const act = () => {
      if (this.viewport.moved) this.viewport.moved = false;
      else if (item.kind === "group") this.toggle(item);
      else this.choose(item.node);
    };
    const key = (event: KeyboardEvent) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      act();
    };
    const label = labelOf(item);
    const kind = item.kind === "group" ? data.modules[item.path] : "";
    const sign = item.kind === "operation" ? "" : open ? "▾ " : "▸ ";
    const expanded: Record<string, string> = item.kind === "group" ? { "aria-expanded": String(open) } : {};
    return draw("g", { class: "hit", role: "button", tabindex: 0, "aria-label": label, ...expanded, onclick: act, onkeydown: key },
      draw("rect", { class: "target", width, height: HEIGHT }),
      draw("text", { x: open ? 10 : width / 2, y: 17, "text-anchor": open ? "start" : "middle" }, sign + label),
      draw("title", {}, item.kind === "group" ? `${item.path || "the model"} ${kind ?? ""}` : this.line(item.line)));
  }

  private line(line: number): string {
    return data.views[this.model.view]!.lines[line]!.trim();
  }

  /** Link the line of an operation, in a pane that shows the view, and describe it. */
  private choose(node: number): void {
    const value = String(this.model.view);
    const line = data.views[this.model.view]!.nodes[node]![0];
    const pane = panes.all.find((each) => each.name !== "source" && each.value === value) ?? panes.all[panes.all.length - 1]!;
    if (pane.value !== value) pane.show(value);
    pane.choose(line);
    pane.scrollTo(line);
    for (const group of this.model.groupsOf[node]!) this.open.add(group);
    if (!this.host.querySelector(`[data-node="${node}"]`)) this.draw();
    const shown = this.host.querySelector<SVGElement>(`[data-node="${node}"] > .hit`);
    if (shown) this.viewport.reveal(shown);
    this.aside.replaceChildren(operationDetails(this.model, node, (other) => this.choose(other)));
  }

  /** Mark operations of linked sites, groups that hold some, and refused operators. */
  private mark(): void {
    const view = data.views[this.model.view]!;
    const refused = new Set(view.refused);
    const holds = (node: number): [boolean, boolean] => {
      const line = view.nodes[node]![0];
      return [data.site_sets[view.site_sets[line]!]!.some((each) => selection.sites.has(each)), refused.has(line)];
    };
    const marked = new Map<Group, [boolean, boolean]>();
    view.nodes.forEach((_, node) => {
      const [linked, bad] = holds(node);
      if (linked || bad)
        for (const group of this.model.groupsOf[node]!) {
          const before = marked.get(group) ?? [false, false];
          marked.set(group, [before[0] || linked, before[1] || bad]);
        }
    });
    const byPath = new Map([...marked].map(([group, each]) => [group.path, each]));
    for (const element of this.host.querySelectorAll<SVGElement>("[data-node], .closed")) {
      const { node, path } = element.dataset;
      const [linked, bad] = node === undefined ? (byPath.get(path!) ?? [false, false]) : holds(Number(node));
      element.classList.toggle("linked", linked);
      element.classList.toggle("refused", bad);
    }
  }
}

let made: Graph | null = null;

/** The picture, which is made when it is first asked for. */
export const graph = (): Graph => (made ??= new Graph());

/** Whether a view has operations to draw. */
export const hasGraph = (): boolean => data.views.some((each) => each.nodes.length);
