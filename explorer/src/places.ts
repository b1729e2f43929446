/** Source lines, shown in the source's pane. */

import { panes } from "./panes";

/** Show, choose and scroll to a line from 1. */
export function showPlace(file: number, line: number): void {
  const source = panes.get("source");
  if (!source) return;
  if (source.element.hidden) panes.toggle(source);
  source.show(String(file));
  source.choose(line - 1);
  source.scrollTo(line - 1);
}
