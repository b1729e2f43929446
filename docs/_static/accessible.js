// Mends what Sphinx's HTML lacks for screen readers and keyboards.
addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll("p.caption[role=heading]")) caption.setAttribute("aria-level", "2");
  for (const part of document.querySelectorAll(".sig > dl, .sig > dl > dd")) part.setAttribute("role", "none");
  for (const box of document.querySelectorAll("article pre, article .table-wrapper"))
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
});
