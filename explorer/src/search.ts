/** The search of all panes. */

import { byId } from "./dom";
import type { Pane } from "./pane";
import { panes } from "./panes";

const input = byId("search") as HTMLInputElement;
let matches: [Pane, number][] = [];
let current = -1;

/** Mark the lines with the text that is in the search field. */
export function search(): void {
  const wanted = input.value.toLowerCase();
  matches = [];
  for (const pane of panes.all) {
    pane.found = new Set();
    if (wanted && !pane.element.hidden)
      pane.document.lines.forEach((text, row) => {
        if (!text.toLowerCase().includes(wanted)) return;
        pane.found.add(row);
        matches.push([pane, row]);
      });
  }
  current = -1;
  byId("found").textContent = wanted ? `${matches.length} lines` : "";
  panes.redraw();
}

export function step(by: number): void {
  if (!matches.length) return;
  current = (current + by + matches.length) % matches.length;
  const [pane, row] = matches[current]!;
  pane.choose(row);
  pane.scrollTo(row);
  byId("found").textContent = `${current + 1} of ${matches.length} lines`;
}

export function searchFor(text: string): void {
  input.value = text;
  search();
  step(1);
}

input.addEventListener("input", search);
input.addEventListener("keydown", (event) => {
  if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
});
