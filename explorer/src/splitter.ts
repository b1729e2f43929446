/** Bars between panes, by which their sizes change: with the mouse, and with the arrow keys. */

import { make } from "./dom";

const LEAST = 0.12;

/** The visible panes on both sides of a bar. */
function sides(bar: HTMLElement): [HTMLElement, HTMLElement] {
  let before = bar.previousElementSibling as HTMLElement;
  while (before.hidden || before.classList.contains("splitter")) before = before.previousElementSibling as HTMLElement;
  return [before, bar.nextElementSibling as HTMLElement];
}

const growth = (pane: HTMLElement): number => Number(getComputedStyle(pane).flexGrow);

export function splitter(): HTMLElement {
  const bar = make("div", { class: "splitter", role: "separator", tabindex: "0", "aria-label": "Size of the panes", "aria-valuenow": 50 });
  const isRow = () => getComputedStyle(bar.parentElement!).flexDirection === "row";

  /** Give the pane before the bar this share of both. */
  const divide = (share: number) => {
    const [before, after] = sides(bar);
    const both = growth(before) + growth(after);
    const kept = Math.min(1 - LEAST, Math.max(LEAST, share));
    before.style.flexGrow = String(both * kept);
    after.style.flexGrow = String(both * (1 - kept));
    bar.setAttribute("aria-valuenow", String(Math.round(100 * kept)));
  };
  bar.addEventListener("pointerdown", (event) => {
    bar.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  bar.addEventListener("pointermove", (event) => {
    if (!bar.hasPointerCapture(event.pointerId)) return;
    const [first, last] = sides(bar).map((each) => each.getBoundingClientRect()) as [DOMRect, DOMRect];
    divide(isRow() ? (event.clientX - first.left) / (last.right - first.left) : (event.clientY - first.top) / (last.bottom - first.top));
  });
  bar.addEventListener("dblclick", () => divide(0.5));
  bar.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const [before, after] = sides(bar);
    divide(growth(before) / (growth(before) + growth(after)) + by * 0.05);
  });
  return bar;
}
