"use strict";
(() => {
  const data = JSON.parse(document.getElementById("contents").textContent);
  const ROW = 18; // pixels, as in the style sheet
  const byId = (name) => document.getElementById(name);

  /** Make an element; strings are text, never HTML. */
  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else element.setAttribute(name, value);
    }
    element.append(...children.map((each) => (each instanceof Node ? each : String(each))));
    return element;
  }

  // ----- links: from source lines to sites, and from sites to sets of sites

  const lineKey = (file, line) => `${file}:${line}`;
  const sitesAt = new Map(); // source line -> sites
  data.sites.forEach((site, number) => {
    for (const [file, line] of site.frames) {
      const key = lineKey(file, line);
      if (!sitesAt.has(key)) sitesAt.set(key, new Set());
      sitesAt.get(key).add(number);
    }
  });
  const refusedLines = new Set();
  for (const problem of data.problems)
    for (const place of problem.places) if (place.file !== null) refusedLines.add(lineKey(place.file, place.line));

  let linkedSites = new Set();
  let linkedLines = new Map(); // source line -> whether it is the innermost of a call stack

  let pointedSites = new Set(); // of the line under the mouse

  function point(sites) {
    pointedSites = new Set(sites);
    panes.forEach((pane) => pane.drawPointed());
  }

  function link(sites) {
    linkedSites = new Set(sites);
    linkedLines = new Map();
    for (const number of linkedSites)
      data.sites[number].frames.forEach(([file, line], depth) => {
        const key = lineKey(file, line);
        linkedLines.set(key, linkedLines.get(key) || depth === 0);
      });
  }

  /** Shorten a path to its last parts, as many as tell it from the other files. */
  function shorten(path) {
    const parts = path.split("/");
    for (let count = 1; count < parts.length; count++) {
      const end = `/${parts.slice(-count).join("/")}`;
      if (data.files.filter((each) => each.path.endsWith(end)).length === 1) return end.slice(1);
    }
    return path;
  }
  const shortPaths = data.files.map((each) => shorten(each.path));

  // ----- panes, which draw the rows in sight

  class Pane {
    constructor(name, label, choices) {
      this.name = name;
      this.count = 0;
      this.chosen = -1;
      this.found = new Set();
      this.select = make("select", { "aria-label": label, onchange: () => this.show(Number(this.select.value)) });
      choices.forEach(([value, text]) => this.select.append(make("option", { value }, text)));
      this.size = make("span", { class: "muted" });
      this.spacer = make("div");
      this.rows = make("div", { class: "rows", tabindex: "0", role: "region", "aria-label": label }, this.spacer);
      this.element = make("section", { class: "pane" }, make("div", {}, this.select, this.size), this.rows);
      this.rows.addEventListener("scroll", () => this.draw());
      this.spacer.addEventListener("click", (event) => {
        const row = event.target.closest(".row");
        if (row && !String(getSelection())) this.choose(Number(row.dataset.row));
      });
      this.spacer.addEventListener("mouseover", (event) => {
        const row = event.target.closest(".row");
        if (row) point(this.sitesOf(Number(row.dataset.row)));
      });
      this.rows.addEventListener("mouseleave", () => point([]));
      this.rows.addEventListener("keydown", (event) => this.key(event));
      byId("panes").append(this.element);
    }

    show(index) {
      this.index = index;
      this.select.value = String(index);
      this.chosen = -1;
      this.lines = this.linesOf(index);
      this.select.title = data.files[index] && this.name === "source" ? data.files[index].path : "";
      this.count = this.lines.length;
      const longest = this.lines.reduce((most, each) => Math.max(most, each.length), 0);
      this.size.textContent = `${this.count.toLocaleString("en")} lines`;
      this.spacer.style.height = `${this.count * ROW}px`;
      this.spacer.style.width = `${longest + 9}ch`;
      this.rows.scrollTop = 0;
      search(false);
      this.draw();
    }

    draw() {
      const first = Math.max(0, Math.floor(this.rows.scrollTop / ROW) - 10);
      const last = Math.min(this.count, first + Math.ceil(this.rows.clientHeight / ROW) + 20);
      const made = [];
      for (let row = first; row < last; row++) {
        const classes = ["row", ...this.classes(row)];
        if (this.found.has(row)) classes.push("found");
        if (row === this.chosen) classes.push("chosen");
        const number = make("span", { class: "n" }, row + 1);
        const element = make("div", { class: classes.join(" "), "data-row": row }, number, this.lines[row]);
        element.style.top = `${row * ROW}px`;
        const title = this.titleOf(row);
        if (title) element.title = title;
        if (row === this.chosen) element.setAttribute("aria-current", "true");
        made.push(element);
      }
      this.spacer.replaceChildren(...made);
      this.drawPointed();
    }

    /** Mark the rows in sight that share a site with the line under the mouse; rows stay, so that clicks reach them. */
    drawPointed() {
      for (const row of this.spacer.children) {
        const sites = pointedSites.size ? [...this.sitesOf(Number(row.dataset.row))] : [];
        row.classList.toggle("pointed", sites.some((each) => pointedSites.has(each)));
      }
    }

    choose(row, remember = true) {
      panes.forEach((each) => (each.chosen = -1));
      this.chosen = row;
      link(this.sitesOf(row));
      panes.forEach((each) => {
        if (each !== this) each.reveal();
        each.draw();
      });
      if (remember) history.replaceState(null, "", `#${this.name}/${this.index}/${row + 1}`);
    }

    scrollTo(row) {
      const top = row * ROW;
      if (top < this.rows.scrollTop || top > this.rows.scrollTop + this.rows.clientHeight - 2 * ROW)
        this.rows.scrollTop = Math.max(0, top - this.rows.clientHeight / 3);
    }

    key(event) {
      const page = Math.max(1, Math.floor(this.rows.clientHeight / ROW) - 1);
      const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
      const sideways = { ArrowLeft: -1, ArrowRight: 1 };
      if (event.key in steps && this.count) {
        const row = Math.min(this.count - 1, Math.max(0, this.chosen + steps[event.key]));
        this.choose(row);
        this.scrollTo(row);
      } else if (event.key in sideways) {
        const next = panes[panes.indexOf(this) + sideways[event.key]];
        if (next) next.rows.focus();
      } else return;
      event.preventDefault();
    }
  }

  class SourcePane extends Pane {
    linesOf(index) {
      const file = data.files[index];
      return file ? file.lines || ["(the source is not available)"] : [];
    }
    sitesOf(row) {
      return sitesAt.get(lineKey(this.index, row + 1)) || [];
    }
    titleOf() {
      return "";
    }
    classes(row) {
      const key = lineKey(this.index, row + 1);
      const classes = [];
      if (!sitesAt.has(key)) classes.push("none");
      if (linkedLines.has(key)) classes.push("linked");
      if (refusedLines.has(key)) classes.push("refused");
      return classes;
    }
    /** Scroll to the innermost linked line, in the file on show if it has any. */
    reveal() {
      const keys = [...linkedLines].sort((a, b) => b[1] - a[1]).map(([key]) => key.split(":").map(Number));
      const place = keys.find(([file]) => file === this.index) || keys[0];
      if (!place) return;
      if (place[0] !== this.index) this.show(place[0]);
      this.scrollTo(place[1] - 1);
    }
  }

  class ViewPane extends Pane {
    linesOf(index) {
      const view = data.views[index];
      this.refused = new Set(view ? view.refused : []);
      return view ? view.lines : [];
    }
    sitesOf(row) {
      return data.site_sets[data.views[this.index].site_sets[row]];
    }
    /** Say which submodules and source lines a row came from. */
    titleOf(row) {
      const sites = this.sitesOf(row).slice(0, 4).map((each) => data.sites[each]);
      const line = ({ frames: [[file, number] = []] }) => (number ? `${shortPaths[file]}:${number}` : "");
      return sites.map((site) => [site.module, line(site)].filter(Boolean).join(" at ")).join("\n");
    }
    classes(row) {
      const sites = this.sitesOf(row);
      const classes = sites.length ? [] : ["none"];
      if (sites.some((each) => linkedSites.has(each))) classes.push("linked");
      if (this.refused.has(row)) classes.push("refused");
      return classes;
    }
    reveal() {
      if (!linkedSites.size || !this.count) return;
      const sets = data.site_sets.map((each) => each.some((site) => linkedSites.has(site)));
      const row = data.views[this.index].site_sets.findIndex((set) => sets[set]);
      if (row >= 0) this.scrollTo(row);
    }
  }

  // ----- search

  let matches = [];
  let current = -1;

  function search(jump) {
    const wanted = byId("search").value.toLowerCase();
    matches = [];
    for (const pane of panes) {
      pane.found = new Set();
      if (wanted)
        (pane.lines || []).forEach((text, row) => {
          if (text.toLowerCase().includes(wanted)) {
            pane.found.add(row);
            matches.push([pane, row]);
          }
        });
    }
    current = -1;
    byId("found").textContent = wanted ? `${matches.length} lines` : "";
    if (jump && matches.length) step(1);
    panes.forEach((pane) => pane.draw());
  }

  function step(by) {
    if (!matches.length) return;
    current = (current + by + matches.length) % matches.length;
    const [pane, row] = matches[current];
    pane.choose(row);
    pane.scrollTo(row);
    byId("found").textContent = `${current + 1} of ${matches.length} lines`;
  }

  // ----- overview

  const bytes = (count) => {
    for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
      if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
    return `${count} B`;
  };
  const total = (counts) => Object.values(counts || {}).reduce((sum, each) => sum + each, 0);
  const table = (titles, rows) =>
    make("table", {}, make("thead", {}, make("tr", {}, ...titles.map((each) => make("th", { scope: "col" }, each)))),
      make("tbody", {}, ...rows));
  const number = (text) => make("td", { class: "number" }, text);

  /** Say how the counts of operations differ: "+4 tosa.add, −4 torch.aten.add.Tensor". */
  function changed(before, after) {
    const names = new Set([...Object.keys(before || {}), ...Object.keys(after || {})]);
    const rows = [...names].map((name) => [name, ((after || {})[name] || 0) - ((before || {})[name] || 0)]);
    const real = rows.filter((each) => each[1]).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
    const shown = real.slice(0, 8).map(([name, by]) => `${by > 0 ? "+" : "−"}${Math.abs(by)} ${name}`);
    return shown.join(", ") + (real.length > 8 ? `, … ${real.length - 8} more kinds` : "");
  }

  function stages() {
    const all = data.stages.reduce((sum, each) => sum + each.seconds, 0) || 1;
    let before = null;
    let kind = null;
    const rows = data.stages.map((stage) => {
      const view = stage.view === null ? null : data.views[stage.view];
      if (view && view.kind !== kind) before = null; // nodes of a graph and operations have other names
      kind = view ? view.kind : kind;
      const bar = make("span", { class: "bar" });
      bar.style.width = `${(stage.seconds / all) * 8}em`;
      const difference = stage.operations ? changed(before, stage.operations) : "";
      const name = stage.view === null ? stage.name
        : make("button", { onclick: () => panes[2].show(stage.view) }, stage.name);
      before = stage.operations || before;
      return make("tr", stage.outcome === "failed" ? { class: "bad" } : {}, make("td", {}, name),
        number(`${stage.seconds.toFixed(3)} s`), make("td", {}, bar),
        number(stage.operations ? total(stage.operations).toLocaleString("en") : stage.outcome),
        make("td", {}, [difference, ...stage.remarks].filter(Boolean).join("; ")));
    });
    data.not_reached.forEach((name) =>
      rows.push(make("tr", { class: "muted" }, make("td", {}, name), make("td", {}, "not reached"))));
    return table(["stage", "time", "share", "operations", "changed"], rows);
  }

  function constants() {
    const rows = data.constants.slice(0, 500).map((each) =>
      make("tr", {}, number(bytes(each.nbytes)), make("td", {}, each.name || "(a literal)"), make("td", {}, each.type),
        make("td", {}, each.in_module ? "in the module" : "outside of the module")));
    const left = data.constants.length - rows.length;
    return make("div", {}, table(["size", "name", "type", "place"], rows), left > 0 ? `… ${left} more` : "");
  }

  function operations() {
    const last = [...data.stages].reverse().find((each) => each.operations);
    const rows = Object.entries(last ? last.operations : {}).map(([name, count]) =>
      make("tr", {}, number(count.toLocaleString("en")), make("td", {},
        make("button", { onclick: () => { byId("search").value = name; search(true); } }, name))));
    return table(["count", `after ${last ? last.name : "nothing"}`], rows);
  }

  function problems() {
    const listed = data.problems.map((problem) => {
      const places = problem.places.filter((each) => each.file !== null).map((each) =>
        make("button", { onclick: () => { panes[0].show(each.file); panes[0].choose(each.line - 1); panes[0].scrollTo(each.line - 1); } },
          `${data.files[each.file].path}:${each.line}${each.module ? ` in ${each.module}` : ""}`));
      const distinct = [...new Map(places.map((each) => [each.textContent, each])).values()];
      return make("div", {}, make("pre", { class: "bad" }, problem.title),
        make("pre", {}, `${problem.stage ? `${problem.stage}: ` : ""}${problem.reason}`), ...distinct,
        ...problem.suggestions.map((each) => make("pre", {}, `try: ${each}`)));
    });
    return make("div", {}, ...(listed.length ? listed : [make("pre", { class: "bad" }, data.error)]));
  }

  function functions() {
    return make("pre", {}, Object.entries(data.functions).map(([name, type]) => name + type).join("\n"));
  }

  function tabs() {
    const size = data.constants.reduce((sum, each) => sum + each.nbytes, 0);
    const listed = [
      ["problems", `Refused (${data.problems.length || 1})`, problems, data.error !== null],
      ["stages", `Stages (${data.stages.length})`, stages, true],
      ["operations", "Operations", operations, true],
      ["constants", `Constants (${data.constants.length}, ${bytes(size)})`, constants, data.constants.length > 0],
      ["functions", "Functions", functions, Object.keys(data.functions).length > 0],
    ].filter((each) => each[3]);
    const buttons = listed.map(([name, text, build]) => {
      const button = make("button", { "aria-expanded": "false", "aria-controls": "overview", id: `tab-${name}` }, text);
      button.addEventListener("click", () => {
        const open = button.getAttribute("aria-expanded") === "true";
        buttons.forEach((each) => each.setAttribute("aria-expanded", "false"));
        byId("overview").hidden = open;
        if (!open) {
          button.setAttribute("aria-expanded", "true");
          byId("overview").replaceChildren(build());
        }
        panes.forEach((pane) => pane.draw());
      });
      if (name === "problems") button.classList.add("bad");
      return button;
    });
    byId("tabs").append(...buttons);
    if (data.error !== null) buttons[0].click();
  }

  // ----- the page

  const stagesOf = (index) => data.stages.filter((each) => each.view === index).map((each) => each.name);
  const viewChoices = data.views.map((view, index) => {
    const [first, ...same] = stagesOf(index);
    return [index, `after ${first}${same.length ? ` (same until ${same[same.length - 1]})` : ""}`];
  });
  const panes = [];
  panes.push(new SourcePane("source", "Python source", data.files.map((file, index) => [index, shortPaths[index]])));
  panes.push(new ViewPane("left", "An earlier stage", viewChoices));
  panes.push(new ViewPane("right", "A later stage", viewChoices));

  const passed = data.outcome === "lowered" ? "" : ", failed";
  byId("title").textContent = data.title;
  byId("summary").textContent = `${data.output_type}${passed} — ${data.generator}`;
  const imported = data.views.findIndex((each) => each.kind === "mlir");
  panes[0].show(0);
  panes[1].show(Math.max(0, imported));
  panes[2].show(data.views.length - 1);
  tabs();

  const [name, index, row] = location.hash.slice(1).split("/");
  const linked = panes.find((each) => each.name === name);
  if (linked && [...linked.select.options].some((each) => each.value === index)) {
    linked.show(Number(index));
    if (row > 0 && row <= linked.count) {
      linked.choose(row - 1, false);
      linked.scrollTo(row - 1);
    }
  } else if (data.problems.length) panes.forEach((pane) => {
    const at = pane.lines.findIndex((_, each) => pane.classes(each).includes("refused"));
    if (at >= 0) pane.scrollTo(at);
  });

  byId("search").addEventListener("input", () => search(false));
  byId("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target !== byId("search")) {
      event.preventDefault();
      byId("search").focus();
      byId("search").select();
    } else if (event.key === "Escape") {
      byId("search").value = "";
      byId("search").blur();
      link([]);
      panes.forEach((each) => (each.chosen = -1));
      history.replaceState(null, "", location.href.split("#")[0]);
      search(false);
    }
  });
  addEventListener("resize", () => panes.forEach((pane) => pane.draw()));
})();
