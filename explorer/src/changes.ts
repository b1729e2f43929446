/** The difference of two texts, by line. */

import { diffArrays } from "diff";
import { data } from "./contents";

export interface Row {
  text: string;
  sign: "+" | "-" | " ";
  /** The row in the text after, or of "-", before. */
  line: number;
}

const CONTEXT = 3;
/** Edits, and ms, beyond which the texts count as different altogether, between what they begin and end with. */
const LIMITS = { maxEditLength: 4000, timeout: 400 };

/** A line without the numbers of its values, which change whenever one is inserted before. */
const withoutNumbers = (line: string): string => line.replace(/%[\w#:]+/g, "%").replace(/\s+/g, " ");

/** Whether enough lines are in both texts for a comparison: a conversion to another dialect replaces nearly all. */
function comparable(a: string[], b: string[]): boolean {
  const known = new Set(a);
  return b.filter((each) => known.has(each)).length * 5 > Math.min(a.length, b.length);
}

export interface Changes {
  rows: Row[];
  /** Runs of unchanged rows: first and last. */
  folded: [number, number][];
  added: number;
  removed: number;
}

const cache = new Map<string, Changes>();

/** The changes from a view to another, by their numbers. */
export function changesOf(before: number, after: number): Changes {
  const key = `${before}-${after}`;
  if (!cache.has(key)) cache.set(key, compare(data.views[before]!.lines, data.views[after]!.lines));
  return cache.get(key)!;
}

function compare(before: string[], after: string[]): Changes {
  const [a, b] = [before.map(withoutNumbers), after.map(withoutNumbers)] as const;
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const [left, right] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  const parts = (comparable(left, right) ? diffArrays(left, right, LIMITS) : undefined) ?? [
    { count: left.length, removed: true, added: false },
    { count: right.length, removed: false, added: true },
  ];
  const rows: Row[] = [];
  const folded: [number, number][] = [];
  let [from, to] = [0, 0];
  const append = (count: number, removed: boolean, added: boolean) => {
    const first = rows.length;
    for (let each = 0; each < count; each++) {
      const line = removed ? from : to;
      rows.push({ text: (removed ? before : after)[line]!, sign: removed ? "-" : added ? "+" : " ", line });
      if (!added) from++;
      if (!removed) to++;
    }
    if (!removed && !added && count > 2 * CONTEXT + 2)
      folded.push([first && first + CONTEXT - 1, to === after.length ? rows.length - 1 : rows.length - CONTEXT - 1]);
  };
  append(start, false, false);
  for (const { count, removed, added } of parts) append(count ?? 0, removed, added);
  append(end, false, false);
  const count = (sign: string) => rows.filter((each) => each.sign === sign).length;
  return { rows, folded, added: count("+"), removed: count("-") };
}
