/** The explorer inside the playground: the editor takes the place of the source, and both tell each other what is linked. */

import { data } from "./contents";
import { panes } from "./panes";
import { lineKey, onLink, selection, sitesAt } from "./selection";

/** The name that the playground gives to the frame. */
const NAME = "playground";

/** Hide the source that is edited, and exchange lines of it with the playground. Returns whether there is one. */
export function embed(): boolean {
  if (window.name !== NAME || parent === window) return false;
  const edited = data.files.findIndex((each) => each.path.endsWith("playground_model.py"));
  const source = panes.get("source");
  if (edited < 0 || !source) return false;
  if (!source.element.hidden) panes.toggle(source);
  onLink(() => {
    const lines = [...selection.lines].filter(([key]) => key.startsWith(`${edited}:`)).map(([key, inner]) => [Number(key.split(":")[1]), inner]);
    parent.postMessage({ lines }, "*"); // the page around this one, which has no secrets of it
  });
  addEventListener("message", (event) => {
    const line: unknown = event.source === parent ? event.data?.line : null;
    if (typeof line === "number") panes.reveal(sitesAt.get(lineKey(edited, line)) ?? []);
  });
  return true;
}
