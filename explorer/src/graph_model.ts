/** A view's operations as nested groups by submodule, of which each level has few items. */

import { data, moduleOf } from "./contents";

/** Items of a group beyond which consecutive ones are grouped. */
const MOST_ITEMS = 48;

export interface Operation {
  kind: "operation";
  /** Index in the nodes of the view. */
  node: number;
  name: string;
  line: number;
}

export interface Group {
  kind: "group";
  /** Qualified name of the submodule; with "/3" for the fourth part of a long one. */
  path: string;
  label: string;
  items: Item[];
  /** Number of operations. */
  size: number;
}

export type Item = Operation | Group;

export interface GraphModel {
  view: number;
  root: Group;
  /** For each node of the view, the groups that it is in, from the root inwards. */
  groupsOf: Group[][];
  /** Edges between the items of a group, by the groups and nodes that they are. */
  edgesOf(group: Group): Map<Item, Map<Item, number>>;
}

const group = (path: string, label: string): Group => ({ kind: "group", path, label, items: [], size: 0 });

export function graphModel(view: number): GraphModel {
  const { nodes } = data.views[view]!;
  const root = group("", data.modules[""] || data.title);
  const made = new Map<string, Group>([["", root]]);
  const groupAt = (path: string): Group => {
    let found = made.get(path);
    if (!found) {
      const [parent, name] = path.includes(".")
        ? [path.slice(0, path.lastIndexOf(".")), path.slice(path.lastIndexOf(".") + 1)]
        : ["", path];
      made.set(path, (found = group(path, name)));
      groupAt(parent).items.push(found);
    }
    return found;
  };
  nodes.forEach(([line, name], node) => {
    const operation: Operation = { kind: "operation", node, name: data.node_names[name]!, line };
    const outside = /^(input|output)\b/.test(operation.name);
    groupAt(outside ? "" : (moduleOf(data.views[view]!, line) ?? "")).items.push(operation);
  });
  arrange(root);

  const groupsOf: Group[][] = [];
  const operations: Operation[] = [];
  const enter = (at: Group, around: Group[]) => {
    const inside = [...around, at];
    for (const each of at.items)
      if (each.kind === "group") enter(each, inside);
      else {
        groupsOf[each.node] = inside;
        operations[each.node] = each;
      }
  };
  enter(root, []);
  const itemOf = (node: number, depth: number): Item => groupsOf[node]![depth + 1] ?? operations[node]!;
  return {
    view,
    root,
    groupsOf,
    edgesOf(of) {
      const edges = new Map<Item, Map<Item, number>>();
      nodes.forEach(([, , inputs], node) => {
        const depth = groupsOf[node]!.indexOf(of);
        if (depth < 0) return;
        const to = itemOf(node, depth);
        for (const input of inputs) {
          if (groupsOf[input]![depth] !== of) continue;
          const from = itemOf(input, depth);
          if (from === to) continue;
          if (!edges.has(from)) edges.set(from, new Map());
          edges.get(from)!.set(to, (edges.get(from)!.get(to) ?? 0) + 1);
        }
      });
      return edges;
    },
  };
}

/** Count operations, merge a group with its only item, and divide long groups. */
function arrange(of: Group): void {
  for (const each of of.items) if (each.kind === "group") arrange(each);
  const [only] = of.items;
  if (of.path && of.items.length === 1 && only!.kind === "group") {
    of.label = `${of.label}.${only.label}`;
    of.path = only.path;
    of.items = only.items;
  }
  of.size = of.items.reduce((sum, each) => sum + (each.kind === "group" ? each.size : 1), 0);
  divide(of);
}

function divide(of: Group): void {
  if (of.items.length <= MOST_ITEMS) return;
  const length = Math.ceil(of.items.length / Math.min(MOST_ITEMS / 2, Math.ceil(of.items.length / 16)));
  const parts: Group[] = [];
  for (let start = 0; start < of.items.length; start += length) {
    const part = group(`${of.path}/${parts.length}`, `part ${parts.length + 1}`);
    part.items = of.items.slice(start, start + length);
    part.size = part.items.reduce((sum, each) => sum + (each.kind === "group" ? each.size : 1), 0);
    divide(part);
    parts.push(part);
  }
  of.items = parts;
}
