/** The summary of the page: what was lowered to what, how large it is, how long it took, and whether it is right. */

import { type Counts, data, readableBytes } from "./contents";
import { make } from "./dom";

const total = (counts: Counts | null): number => Object.values(counts ?? {}).reduce((sum, each) => sum + each, 0);

interface Verdict {
  text: string;
  kind: "good" | "bad" | "muted";
}

function verdict(): Verdict {
  if (data.divergences.length) return { text: "differs from PyTorch", kind: "bad" };
  if (!data.checks.length) return { text: "not verified", kind: "muted" };
  const failed = data.checks.filter((each) => each.required && each.status !== "passed");
  if (failed.length) return { text: `${failed[0]!.status} on ${failed[0]!.backend}`, kind: "bad" };
  const backends = [...new Set(data.checks.filter((each) => each.status === "passed").map((each) => each.backend))];
  return backends.length ? { text: `equals PyTorch on ${backends.join(", ")}`, kind: "good" } : { text: "not verified", kind: "muted" };
}

/** Return the facts as terms and descriptions; `open` opens a tab. */
export function facts(open: (tab: string) => void): HTMLElement[] {
  const counted = data.stages.filter((each) => each.operations);
  const [before, after] = [counted[0], counted[counted.length - 1]];
  const rows: HTMLElement[] = [];
  const add = (term: string, text: string, kind = "", tab = "") => {
    const value = tab ? make("button", { onclick: () => open(tab) }, text) : text;
    rows.push(make("div", kind ? { class: kind } : {}, make("dt", {}, term), make("dd", {}, value)));
  };
  if (data.modules[""] && data.modules[""] !== data.title) add("Model", data.modules[""]);
  add("Output", data.outcome === "lowered" ? data.output_type : `${data.output_type}: failed`, data.outcome === "lowered" ? "accent" : "bad");
  if (before && after) add("Operations", `${total(before.operations).toLocaleString("en")} → ${total(after.operations).toLocaleString("en")}`, "", "operations");
  const weights = data.constants.reduce((sum, each) => sum + each.nbytes, 0);
  if (data.outcome === "lowered") add("Weights", readableBytes(weights), "", data.constants.length ? "constants" : "");
  add("Time", `${data.stages.reduce((sum, each) => sum + each.seconds, 0).toFixed(2)} s`, "", data.stages.length ? "stages" : "");
  const { text, kind } = verdict();
  if (data.outcome === "lowered") add("Verified", text, kind, data.checks.length + data.divergences.length ? "checks" : "");
  return rows;
}
