// A table that can be sorted, whose first column stays, and which can be scrolled by keyboard.

import { el, put } from "../dom.js";
import { number } from "../words.js";

const MOST = 500;

/**
 * columns: texts, or {title, better: 1|-1|0, text(value, row)}; rows: lists of values, or of {value, node, class}.
 * `sort`: [column, 1|-1]; onSort is told of another.
 */
export function table({ columns, rows, caption = "", sort = null, onSort = null, rowProps = () => ({}), most = MOST }) {
  const heads = columns.map((one) => (typeof one === "string" ? { title: one } : one));
  let [by, direction] = sort ?? [null, 1];
  const body = el("tbody");
  const cells = heads.map((head, j) => {
    const sorter = el("button", { type: "button", text: head.title, on: { click: () => turn(j) } });
    return el("th", { scope: "col", title: head.about }, sorter);
  });
  const note = el("p", { class: "soft" });
  const turn = (j) => {
    direction = by === j ? -direction : (head(j).better ?? 1) > 0 ? -1 : 1;
    by = j;
    onSort?.([by, direction]);
    fill();
  };
  const head = (j) => heads[j];
  const fill = () => {
    cells.forEach((cell, j) => cell.setAttribute("aria-sort", by !== j ? "none" : direction > 0 ? "ascending" : "descending"));
    const order = by === null ? rows : [...rows].sort((a, b) => direction * compared(plain(a[by]), plain(b[by])));
    put(body, order.slice(0, most).map((row) => el("tr", rowProps(row), row.map((value, j) => cellOf(value, j, heads[j], row)))));
    note.textContent = order.length > most ? `The first ${most} of ${order.length} rows; the CSV has all.` : "";
  };
  fill();
  const whole = el("table", {}, el("caption", { class: "hidden", text: caption }), el("thead", {}, el("tr", {}, cells)), body);
  const region = el("div", { class: "scroll", tabindex: "0", role: "region", aria: { label: caption || "table" } }, whole);
  return el("div", { class: "tabled" }, region, note);
}

function plain(value) {
  return value !== null && typeof value === "object" ? value.value : value;
}

function compared(a, b) {
  const [unknownA, unknownB] = [a, b].map((one) => one === null || one === undefined || Number.isNaN(one));
  if (unknownA || unknownB) return unknownA - unknownB;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

function cellOf(value, j, head, row) {
  const found = value !== null && typeof value === "object" ? value : { value };
  const text = head.text ? head.text(found.value, row) : typeof found.value === "number" ? number(found.value) : (found.value ?? "–");
  const kind = typeof found.value === "number" ? "figure-cell" : null;
  const props = { class: [kind, found.class].filter(Boolean).join(" ") || null, data: Number.isFinite(found.value) ? { value: found.value } : {} };
  const content = found.node ?? document.createTextNode(text);
  return j === 0 ? el("th", { scope: "row", ...props }, content) : el("td", props, content);
}
