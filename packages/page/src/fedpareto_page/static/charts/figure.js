// A figure: title, picture, a caption that says in a sentence what it shows, the numbers as a table, and exports.

import { button, download, el, put, svg, worded } from "../dom.js";
import { csvCell } from "../words.js";
import { table } from "./table.js";

let serial = 0;
/** Milliseconds: a sentence that changes more often cannot be read, and each time it is laid out anew. */
const SELDOM = 10000;

/**
 * {root, plot, caption(text), setTable(columns, rows)}. `vector` gives the SVG element that is exported; `paper` the
 * address of the same by matplotlib; `isTable`: the plot itself is one.
 */
export function figure({ title, name, vector = null, paper = null, tools = [], isTable = false }) {
  const id = `figure-${++serial}`;
  const plot = el("div", { class: "plot" });
  const caption = el("figcaption", { id: `${id}-caption` });
  const numbers = el("div", { class: "numbers", hidden: true });
  let found = { columns: [], rows: () => [] };
  let stale = true;
  let [words, due, last] = ["", null, -Infinity];
  const told = () => {
    last = performance.now();
    worded(caption, words);
  };

  const shown = () => {
    if (numbers.hidden || !stale) return;
    stale = false;
    put(numbers, table({ columns: found.columns, rows: found.rows(), caption: title }));
  };
  const asTable = button("as table", () => {
    numbers.hidden = !numbers.hidden;
    asTable.setAttribute("aria-expanded", String(!numbers.hidden));
    shown();
  }, { aria: { expanded: "false" } });
  const heading = el("h2", { text: title, id });
  const menu = el("div", { class: "tools" }, tools, isTable ? null : asTable, button("CSV", () => csv(name, found.columns, found.rows())));
  if (vector) {
    menu.append(
      button("SVG", async () => download(`${name}.svg`, (await import("./export.js")).drawn(vector()), "image/svg+xml")),
      button("PNG", async () => download(`${name}.png`, await (await import("./export.js")).painted(vector()))),
    );
  }
  if (paper) menu.append(button("PDF", () => location.assign(paper())));
  const labels = { labelledby: id, describedby: caption.id };
  const root = el("figure", { class: "figure", aria: labels }, el("header", {}, heading, menu), plot, caption, numbers);
  return {
    root,
    plot,
    title(text) {
      heading.textContent = text;
    },
    /** `later`: while a run goes on, words change now and then and not with every round, or when none follows. */
    caption(text, later = false) {
      words = text;
      clearTimeout(due);
      if (later && performance.now() < last + SELDOM) due = setTimeout(told, SELDOM);
      else told();
    },
    /** columns: texts; rows: gives lists of numbers and texts, asked only when somebody looks. */
    setTable(columns, rows) {
      found = { columns, rows };
      stale = true;
      shown();
    },
  };
}

function csv(name, columns, rows) {
  const lines = [columns, ...rows].map((row) => row.map(csvCell).join(","));
  download(`${name}.csv`, lines.join("\r\n") + "\r\n", "text/csv");
}

/** Nothing of these layers is drawn outside of the rectangle that is given back. */
export function clipped(picture, layers) {
  const id = `clip-${++serial}`;
  const field = svg("rect");
  picture.prepend(svg("clipPath", { id }, field));
  for (const layer of layers) layer.setAttribute("clip-path", `url(#${id})`);
  return field;
}

/** Calls draw(width) now and whenever the width of an element changes. */
export function onWidth(node, draw) {
  let last = 0;
  const observer = new ResizeObserver(() => {
    const width = Math.floor(node.clientWidth);
    if (width && width !== last) draw((last = width));
  });
  observer.observe(node);
  return () => observer.disconnect();
}
