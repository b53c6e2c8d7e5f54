// Rows of the user's own: read from a file, and written to one with the edits.

import { download } from "../dom.js";
import { csvCell } from "../words.js";

/** A text in UTF-8, or in what Western spreadsheets write. */
export async function textOf(file) {
  const content = await file.arrayBuffer();
  const [a, b] = new Uint8Array(content, 0, Math.min(2, content.byteLength));
  if (a + b === 0xff + 0xfe) return new TextDecoder(a === 0xff ? "utf-16le" : "utf-16be").decode(content);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    return new TextDecoder("windows-1252").decode(content);
  }
}

/** Gives the user the rows with their edits. */
export function save(view) {
  const lines = view.rows.map((cells, row) => cells.map((cell, j) => view.edits.get(`${row} ${view.columns[j]}`) ?? cell));
  download("ROWS.csv", [view.columns, ...lines].map((line) => line.map(cellText).join(",")).join("\n") + "\n", "text/csv");
}

/** As a number where it is one: the rows are to be read again. */
function cellText(value) {
  return csvCell(typeof value === "string" && value.trim() !== "" && Number.isFinite(Number(value)) ? Number(value) : value);
}
