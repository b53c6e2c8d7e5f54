"""Style sheet and script of the comparison page."""

from __future__ import annotations

CSS = """
:root {
  color-scheme: light dark;
  --ink: #1c1e21; --soft: #5f6670; --paper: #ffffff; --card: #f5f6f8; --edge: #d9dce1; --best: #00704f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e7e9ec; --soft: #a2a9b4; --paper: #16181c; --card: #22252b; --edge: #3a3f48; --best: #5fd3a8;
  }
}
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
p { margin: .3rem 0 .8rem; } .soft, .note, figcaption { color: var(--soft); font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--edge); text-align: right;
  white-space: nowrap; }
thead th { vertical-align: bottom; white-space: normal; background: var(--card); }
th[scope=row], .text td, .text th { text-align: left; white-space: normal; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
th[aria-sort=ascending] button::after { content: " \\25B2"; font-size: .7em; }
th[aria-sort=descending] button::after { content: " \\25BC"; font-size: .7em; }
td.best { font-weight: 700; color: var(--best); }
figure { margin: .5rem 0; }
figure img { display: block; max-width: 100%; height: auto; background: #ffffff;
  border-radius: 6px; padding: .5rem; box-sizing: border-box; border: 1px solid var(--edge); }
figure img[hidden] { display: none; } select.over { font: inherit; margin-bottom: .4rem; }
details { margin: .5rem 0; } summary { cursor: pointer; }
pre { background: var(--card); padding: .8rem; overflow-x: auto; font-size: .85rem; border-radius: 6px; }
"""

# Cells without a value stay at the bottom whichever way the table is sorted.
SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("thead th")];
  const body = table.tBodies[0];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const now = head.getAttribute("aria-sort");
    const flipped = now === "ascending" ? "descending" : "ascending";
    const order = now ? flipped : head.dataset.first;
    const sign = order === "ascending" ? 1 : -1;
    const value = row => row.cells[column].dataset.value;
    const compare = (a, b) => column === 0 ? a.localeCompare(b) : Number(a) - Number(b);
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    [...body.rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      return x === "" || y === "" ? (x === "") - (y === "") : sign * compare(x, y);
    }).forEach(row => body.append(row));
  }));
}
for (const choice of document.querySelectorAll("select.over")) {
  const images = choice.closest("figure").querySelectorAll("img");
  const show = () => images.forEach((image, place) => { image.hidden = place !== choice.selectedIndex; });
  choice.addEventListener("change", show);
  show();
}
"""
