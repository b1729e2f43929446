/** The explorer: a page that links source lines with what they became after each stage. */

import "./explorer.css";
import "./languages"; // with the editor, before the contents, which may come later
import { data, readableBytes } from "./contents";
import { byId, make, setAddress } from "./dom";
import { embed } from "./embedding";
import { graph, hasGraph } from "./graph";
import { foldTo, modules } from "./modules";
import { panes } from "./panes";
import { search } from "./search";
import { passes, passesWithEffect } from "./passes";
import { lineKey, link, refusedLines, sitesAt } from "./selection";
import { facts } from "./facts";
import { checks, constants, functions, operations, problems, stages } from "./tables";

interface Tab {
  name: string;
  text: string;
  build(): HTMLElement;
  bad?: boolean;
}

const buttons = new Map<string, HTMLButtonElement>();

function listedTabs(): Tab[] {
  const size = readableBytes(data.constants.reduce((sum, each) => sum + each.nbytes, 0));
  const failed = data.checks.some((each) => each.required && each.status !== "passed") || data.divergences.length > 0;
  const tabs: (Tab & { shown: boolean })[] = [
    { name: "problems", text: `Refused (${data.problems.length || 1})`, build: problems, bad: true, shown: data.error !== null },
    { name: "graph", text: "Graph", build: () => graph().element, shown: hasGraph() },
    { name: "passes", text: `Passes (${passesWithEffect()})`, build: passes, shown: passesWithEffect() > 0 },
    { name: "modules", text: "Modules", build: modules, shown: data.views.length > 0 },
    { name: "stages", text: `Stages (${data.stages.length})`, build: stages, shown: true },
    { name: "operations", text: "Operations", build: operations, shown: data.views.length > 0 },
    { name: "constants", text: `Constants (${data.constants.length}, ${size})`, build: constants, shown: data.constants.length > 0 },
    { name: "checks", text: "Verification", build: checks, bad: failed, shown: data.checks.length + data.divergences.length > 0 },
    { name: "functions", text: "Functions", build: functions, shown: Object.keys(data.functions).length > 0 },
  ];
  return tabs.filter((each) => each.shown);
}

/** Show what a tab names above the panes; null closes it. */
function openTab(name: string | null): void {
  buttons.forEach((button, each) => button.setAttribute("aria-expanded", String(each === name)));
  const overview = byId("overview");
  overview.hidden = name === null;
  overview.classList.toggle("tall", name === "graph" || name === "passes");
  const tab = listedTabs().find((each) => each.name === name);
  if (tab) overview.replaceChildren(tab.build());
}

function makeTabs(): void {
  for (const { name, text, bad } of listedTabs()) {
    const button = make("button", { "aria-expanded": "false", "aria-controls": "overview", id: `tab-${name}` }, text);
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") === "true";
      openTab(open ? null : name);
      if (!open) setAddress(name);
    });
    if (bad) button.classList.add("bad");
    buttons.set(name, button);
  }
  byId("tabs").append(...buttons.values(), make("span", { id: "hidden-panes" }));
}

/** Go to the place that the address names. Returns whether it names one. */
function follow(): boolean {
  const [name, index = "", row = ""] = decodeURIComponent(location.hash.slice(1)).split("/");
  const pane = panes.get(name ?? "");
  if (pane?.choices.some((each) => each.value === index)) {
    if (pane.element.hidden) panes.toggle(pane);
    pane.show(index);
    const line = Number(row) - 1;
    if (line >= 0 && line < pane.count) {
      pane.choose(line, false);
      pane.scrollTo(line);
    }
    return true;
  }
  if (name === "module" && index in data.modules) {
    openTab("modules");
    foldTo(index);
    return true;
  }
  if (!buttons.has(name ?? "")) return false;
  openTab(name!);
  if (name === "graph" && data.views[Number(index)]?.nodes.length && index) {
    graph().show(Number(index));
    graph().openTo(row);
  }
  return true;
}

function keys(event: KeyboardEvent): void {
  const field = byId("search") as HTMLInputElement;
  if (event.key === "/" && event.target !== field) {
    event.preventDefault();
    field.focus();
    field.select();
  } else if ((event.key === "g" || event.key === "p") && event.target !== field) {
    buttons.get(event.key === "g" ? "graph" : "passes")?.click();
  } else if (event.key === "?" && event.target !== field) {
    (byId("help") as HTMLDialogElement).showModal();
  } else if (event.key === "Escape") {
    field.value = "";
    field.blur();
    panes.all.forEach((each) => (each.chosen = -1));
    link([]);
    panes.foldTo(null);
    setAddress("");
    search();
  }
}

function chooseTheme(): void {
  const button = byId("theme");
  const themes = ["light dark", "light", "dark"];
  const names = ["auto", "light", "dark"];
  let at = 0;
  const apply = () => {
    document.documentElement.style.colorScheme = themes[at]!;
    button.textContent = `Theme: ${names[at]}`;
  };
  button.addEventListener("click", () => {
    at = (at + 1) % themes.length;
    apply();
  });
  apply();
}

byId("title").textContent = data.title;
byId("generator").textContent = data.generator;
byId("facts").append(...facts((tab) => openTab(tab)));
byId("help-button").addEventListener("click", () => (byId("help") as HTMLDialogElement).showModal());
chooseTheme();
makeTabs();
panes.open();
panes.onShow = search;
if (data.error !== null) openTab("problems");
if (!follow()) {
  const problem = data.problems.flatMap((each) => each.places).find(({ file, line }) =>
    file !== null && line !== null && refusedLines.has(lineKey(file, line)));
  const source = panes.get("source");
  if (problem && source) {
    source.show(String(problem.file));
    source.choose(problem.line! - 1, false);
    source.scrollTo(problem.line! - 1);
  } else if (source) {
    const traced = [...sitesAt.keys()].map((each) => each.split(":").map(Number)).filter(([file]) => file === 0);
    if (traced.length) source.scrollTo(Math.max(0, Math.min(...traced.map(([, line]) => line! - 1)) - 3), "start");
  }
}
embed();
addEventListener("hashchange", follow);
document.addEventListener("keydown", keys);
