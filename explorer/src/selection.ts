/** What is linked: the sites of the chosen line, and of the line under the mouse. */

import { data } from "./contents";

export const lineKey = (file: number, line: number): string => `${file}:${line}`;

/** Source line -> the sites whose call stacks it is in. */
export const sitesAt = new Map<string, Set<number>>();
data.sites.forEach((site, number) => {
  for (const [file, line] of site.frames) {
    const key = lineKey(file, line);
    if (!sitesAt.has(key)) sitesAt.set(key, new Set());
    sitesAt.get(key)!.add(number);
  }
});

/** Lines without sites that continue a statement, which have those of the statement. */
export const continued = new Set<string>();
data.files.forEach(({ statements }, file) => {
  for (const [first, last] of statements) {
    const keys = Array.from({ length: last - first + 1 }, (_, each) => lineKey(file, first + each));
    const all = new Set(keys.flatMap((each) => (continued.has(each) ? [] : [...(sitesAt.get(each) ?? [])])));
    for (const each of keys.filter((key) => all.size && !sitesAt.has(key))) {
      sitesAt.set(each, all);
      continued.add(each);
    }
  }
});

/** Source lines of unsupported operators and of the first operations that differ. */
export const refusedLines = new Set<string>();
for (const { places } of [...data.problems, ...data.divergences])
  for (const { file, line } of places) if (file !== null && line !== null) refusedLines.add(lineKey(file, line));

export const selection = {
  sites: new Set<number>(),
  /** Source line -> whether it is the innermost of a call stack. */
  lines: new Map<string, boolean>(),
  pointed: new Set<number>(),
};

const listeners: (() => void)[] = [];

/** Call `listener` when the linked sites have changed. */
export const onLink = (listener: () => void): number => listeners.push(listener);

export function link(sites: Iterable<number>): void {
  selection.sites = new Set(sites);
  selection.lines = new Map();
  for (const number of selection.sites)
    data.sites[number]!.frames.forEach(([file, line], depth) => {
      const key = lineKey(file, line);
      selection.lines.set(key, selection.lines.get(key) || depth === 0);
    });
  listeners.forEach((each) => each());
}
