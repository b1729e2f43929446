/** What the graph's side panel says of an operation or a group: types, place, neighbours. */

import { data, shortPaths } from "./contents";
import { make } from "./dom";
import type { Group, GraphModel } from "./graph_model";
import { showPlace } from "./places";

const TYPE = /!?[\w.]*(?:tensor|memref|vtensor)<[^>]*>|\b(?:float|int|uint|bool|complex)\w*\[[^\]]*\]/g;

/** The types of the results of a node, as its line has them. */
export function typesOf(view: number, node: number): string[] {
  const { lines, nodes } = data.views[view]!;
  const [row, name] = nodes[node]!;
  const line = lines[row]!;
  const input = /^input (.*)/.exec(data.node_names[name]!)?.[1];
  if (input !== undefined && !line.includes(" placeholder ")) {
    const named = line.split(/, (?=%)|\((?=%)/).filter((each) => each.startsWith("%"));
    const own = named.find((each) => each.includes(`fx_importer.name = "${input}"`)) ?? named[Number(/\d+$/.exec(input)?.[0])];
    return own?.slice(own.indexOf(":")).match(TYPE)?.slice(0, 1) ?? [];
  }
  let text = line;
  if (line.endsWith("{")) {
    const indent = /^\s*/.exec(line)![0];
    text = lines.slice(row + 1).find((each) => each.startsWith(`${indent}}`)) ?? line; // the types are behind the region
  }
  const arrow = text.lastIndexOf("->");
  const colon = text.lastIndexOf(" : ");
  return (text.slice(arrow > colon ? arrow : colon).match(TYPE) ?? []).map(String);
}

/** A type in words: "2×3 float32". */
export function inWords(type: string): string {
  const fx = /^(\w+)\[(.*)\]$/.exec(type);
  if (fx) return `${fx[2]!.replace(/, /g, "×") || "scalar"} ${fx[1]}`;
  const torch = /vtensor<\[(.*?)\],?(.*)>/.exec(type);
  if (torch) return `${torch[1]!.replace(/,/g, "×") || "scalar"} ${torch[2]}`;
  const parts = /<(.*)>/.exec(type)?.[1]?.split("x") ?? [];
  return `${parts.slice(0, -1).join("×") || "scalar"} ${parts[parts.length - 1] ?? ""}`;
}

export const nameOf = (view: number, node: number): string =>
  data.node_names[data.views[view]!.nodes[node]![1]]!.replace(/^torch\.aten\.|^aten\./, "aten.");

const rowsOf = (...rows: [string, (Node | string)[]][]): HTMLElement =>
  make("dl", {}, ...rows.flatMap(([term, values]) => (values.length ? [make("dt", {}, term), ...values.map((each) => make("dd", {}, each))] : [])));

export function operationDetails(model: GraphModel, node: number, choose: (node: number) => void): HTMLElement {
  const { lines, nodes, site_sets } = data.views[model.view]!;
  const [row, , inputs] = nodes[node]!;
  const users = nodes.flatMap(([, , used], at) => (used.includes(node) ? [at] : []));
  const neighbour = (at: number) =>
    make("button", { onclick: () => choose(at) }, `${nameOf(model.view, at)}  ${typesOf(model.view, at).map(inWords).join(", ")}`);
  const sites = (data.site_sets[site_sets[row]!] ?? []).map((each) => data.sites[each]!);
  const modules = [...new Set(sites.map((each) => each.module).filter(Boolean))] as string[];
  const places = new Map(sites.flatMap(({ frames }) => frames.slice(0, 1)).map(([file, line]) => [`${shortPaths[file]}:${line}`, [file, line] as const]));
  const buttons = [...places].map(([text, [file, line]]) => make("button", { onclick: () => showPlace(file, line) }, text));
  return make("div", {},
    make("h3", {}, nameOf(model.view, node)),
    rowsOf(
      ["type", typesOf(model.view, node).map(inWords)],
      ["submodule", modules.map((each) => (data.modules[each] ? `${each} (${data.modules[each]})` : each))],
      ["location", buttons],
      ["inputs", inputs.map(neighbour)],
      ["used by", users.slice(0, 20).map(neighbour)],
    ),
    make("pre", {}, lines[row]!.trim()));
}

export function groupDetails(group: Group): HTMLElement {
  const counts = new Map<string, number>();
  const visit = (of: Group): void =>
    of.items.forEach((each) => (each.kind === "group" ? visit(each) : counts.set(each.name, (counts.get(each.name) ?? 0) + 1)));
  visit(group);
  const rows = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([name, count]) => `${count} ${name}`);
  return make("div", {}, make("h3", {}, group.path || group.label),
    rowsOf(["class", [data.modules[group.path.split("/")[0]!] ?? ""].filter(Boolean)], ["operations", [group.size.toLocaleString("en"), ...rows]]));
}
