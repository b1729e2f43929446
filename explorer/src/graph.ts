/** The picture of a graph: groups that open and close, laid out by dagre level by level. */

import dagre from "@dagrejs/dagre";
import { data, viewName, within } from "./contents";
import { draw, make, setAddress } from "./dom";
import { type Group, type GraphModel, graphModel, type Item } from "./graph_model";
import { panes } from "./panes";
import { onLink, selection } from "./selection";

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
  item.kind === "operation" ? item.name.replace(/^torch\.aten\.|^aten\./, "aten.") : `${item.label} · ${item.size.toLocaleString("en")}`;

class Graph {
  readonly element: HTMLElement;
  private readonly host = make("div", { class: "graph-host", tabindex: "0", role: "region", "aria-label": "Graph" });
  private readonly select: HTMLSelectElement;
  private model!: GraphModel;
  private readonly open = new Set<Group>();
  private scale = 1;

  constructor() {
    this.select = make("select", { "aria-label": "Graph of", onchange: () => this.show(Number(this.select.value)) });
    data.views.forEach((view, index) => {
      if (view.nodes.length) this.select.append(make("option", { value: index }, viewName(index)));
    });
    const zoom = (by: number, text: string, label: string) =>
      make("button", { "aria-label": label, onclick: () => this.zoom(by) }, text);
    const bar = make("div", { class: "bar-top" }, this.select, zoom(1.25, "+", "Zoom in"), zoom(0.8, "−", "Zoom out"),
      make("button", { onclick: () => this.close() }, "Close all"),
      make("span", { class: "muted" }, "Choose a group to open it, an operation to link it."));
    this.element = make("div", { class: "graph" }, bar, this.host);
    onLink(() => this.mark());
    this.show(Number(this.select.value));
  }

  show(view: number): void {
    this.model = graphModel(view);
    this.select.value = String(view);
    this.close();
  }

  private close(): void {
    this.open.clear();
    this.open.add(this.model.root);
    this.draw();
  }

  /** Open the groups around a submodule, and the submodule. */
  openTo(path: string): void {
    const visit = (group: Group): void => {
      this.open.add(group);
      for (const each of group.items) if (each.kind === "group" && within(path, each.path.split("/")[0]!)) visit(each);
    };
    visit(this.model.root);
    this.draw();
    this.host.querySelector(`[data-path="${CSS.escape(path)}"]`)?.scrollIntoView({ block: "start", inline: "center" });
  }

  private toggle(group: Group): void {
    if (!this.open.delete(group)) this.open.add(group);
    this.draw();
    const again = this.host.querySelector<SVGElement>(`[data-path="${CSS.escape(group.path)}"] > .hit`);
    again?.focus();
    again?.scrollIntoView({ block: "nearest", inline: "nearest" });
    setAddress(`graph/${this.model.view}/${group.path}`);
  }

  private zoom(by: number): void {
    this.scale = Math.min(3, Math.max(0.1, this.scale * by));
    this.resize();
  }

  private resize(): void {
    const svg = this.host.querySelector("svg");
    if (!svg) return;
    const { width, height } = svg.viewBox.baseVal;
    svg.setAttribute("width", String(width * this.scale));
    svg.setAttribute("height", String(height * this.scale));
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
    const arrow = draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7,
      orient: "auto-start-reverse" }, draw("path", { d: "M0,0L8,4L0,8z", class: "arrow" }));
    const svg = draw("svg", { viewBox: `0 0 ${placed.width} ${placed.height}` }, draw("defs", {}, arrow));
    svg.append(this.drawGroup(this.model.root, placed, 0, 0, 0));
    this.host.replaceChildren(svg);
    this.resize();
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
    return draw("g", { transform: `translate(${x},${y})`, class: item.kind === "group" ? "group closed" : "operation",
      "data-depth": depth + 1, ...path },
      draw("rect", { class: "box", width, height, rx: item.kind === "group" ? 6 : 12 }), this.title(item, width, false));
  }

  /** The text of an item, which is its button. */
  private title(item: Item, width: number, open: boolean): SVGGElement {
    const act = () => (item.kind === "group" ? this.toggle(item) : this.choose(item.line));
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

  /** Link the line of an operation, in a pane that shows the view. */
  private choose(line: number): void {
    const value = String(this.model.view);
    const pane = panes.all.find((each) => each.name !== "source" && each.value === value) ?? panes.all[panes.all.length - 1]!;
    if (pane.value !== value) pane.show(value);
    pane.choose(line);
    pane.scrollTo(line);
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


