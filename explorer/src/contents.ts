/** The data of the page: what docs/explorer.schema.json states. */

export type Counts = Record<string, number>;
/** A file and a line from 1. */
export type Frame = [file: number, line: number];

export interface Site {
  module: string | null;
  frames: Frame[];
}

export interface Place {
  file: number | null;
  line: number | null;
  module: string | null;
}

export interface Stage {
  name: string;
  seconds: number;
  outcome: "passed" | "failed";
  operations: Counts | null;
  view: number | null;
  remarks: string[];
}

/** A line, an index of node_names, and indices of the nodes that it uses. */
export type GraphNode = [line: number, name: number, inputs: number[]];

export interface View {
  kind: "fx" | "mlir";
  lines: string[];
  site_sets: number[];
  refused: number[];
  nodes: GraphNode[];
}

/** First rows before and after, from 0, and rows with a sign: "-", "+" or " ". */
export type Hunk = [before: number, after: number, rows: string[]];

export interface PassChange {
  stage: number;
  name: string;
  operations: number;
  hunks: Hunk[];
}

export interface Problem {
  title: string;
  operator: string;
  stage: string;
  reason: string;
  places: Place[];
  suggestions: string[];
}

export interface Check {
  backend: string;
  function: string;
  inputs: number;
  required: boolean;
  output: string | null;
  status: string;
  detail: string;
  dtype?: string;
  shape?: number[];
  max_absolute?: number | null;
  max_relative?: number | null;
}

export interface Divergence {
  node: string;
  operator: string;
  backend: string;
  cause: string;
  detail: string;
  places: Place[];
}

export interface Constant {
  name: string;
  type: string;
  nbytes: number;
  in_module: boolean;
}

export interface Contents {
  generator: string;
  title: string;
  output_type: string;
  outcome: "lowered" | "failed";
  error: string | null;
  functions: Record<string, string>;
  stages: Stage[];
  not_reached: string[];
  views: View[];
  passes?: PassChange[];
  node_names: string[];
  modules: Record<string, string>;
  site_sets: number[][];
  sites: Site[];
  files: { path: string; lines: string[] | null; statements: [first: number, last: number][] }[];
  constants: Constant[];
  problems: Problem[];
  checks: Check[];
  divergences: Divergence[];
}

/** The text of the contents: in the page, or posted by its parent, as the playground does, which loads the page ahead. */
async function contentsText(): Promise<string> {
  const embedded = document.getElementById("contents")!.textContent!;
  if (embedded) return embedded;
  return new Promise((resolve) => {
    addEventListener("message", function receive({ source, data }) {
      if (source !== parent || typeof data?.contents !== "string") return;
      removeEventListener("message", receive);
      resolve(data.contents);
    });
    parent.postMessage({ ready: true }, "*");
  });
}

export const data: Contents = JSON.parse(await contentsText());

/** The qualified name of the submodule that a line came from; "" for the model itself, null if it has no site. */
export function moduleOf(view: View, line: number): string | null {
  const sites = data.site_sets[view.site_sets[line]!]!.map((each) => data.sites[each]!);
  return sites.length ? (sites.find((each) => each.module)?.module ?? "") : null;
}

/** Whether `path` is `module` or inside of it. */
export const within = (path: string, module: string): boolean =>
  module === "" || path === module || path.startsWith(`${module}.`);

export const readableBytes = (count: number): string => {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]] as const)
    if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
  return `${count} B`;
};

/** Shorten a path to its last parts, as many as tell it from the other files. */
function shorten(path: string): string {
  const parts = path.split("/");
  for (let count = 1; count < parts.length; count++) {
    const end = `/${parts.slice(-count).join("/")}`;
    if (data.files.filter((each) => each.path.endsWith(end)).length === 1) return end.slice(1);
  }
  return path;
}

export const shortPaths = data.files.map((each) => shorten(each.path));

/** Say what a view is called: the stages after which the program or module is as it shows. */
export function viewName(index: number): string {
  const names = data.stages.filter((each) => each.view === index).map((each) => each.name);
  const last = names[names.length - 1];
  return `after ${names[0]}${names.length > 1 ? ` (same until ${last})` : ""}`;
}
