// Puts a search field above each long table, which hides the rows that do not contain what is in it.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table")) {
    const rows = [...table.querySelectorAll("tbody tr")];
    if (rows.length < 12) continue;
    const count = document.createElement("span");
    const field = document.createElement("input");
    Object.assign(field, { type: "search", placeholder: "Filter rows: words, all of which a row contains" });
    field.setAttribute("aria-label", "Filter the rows of the table below");
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
      count.textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
    });
    const line = document.createElement("p");
    line.className = "table-filter";
    line.append(field, count);
    (table.closest(".table-wrapper") ?? table).before(line);
  }
});
