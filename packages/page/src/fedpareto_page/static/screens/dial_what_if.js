// What if a row were different? Its cells as fields, and rows with cells that were edited.

import { button, choice, el, renew, worded } from "../dom.js";
import { counted, number } from "../words.js";

/** The chosen row's cells as fields. */
export function drawWhatIf(view, now) {
  const { parts, about, row } = view;
  if (row === null) return renew(parts.whatIf, "", () => []);
  const own = [...view.edits.keys()].filter((place) => place.startsWith(`${row} `));
  renew(parts.whatIf, `row ${row} ${own.length}`, () => el("fieldset", {},
    el("legend", { text: `What if row ${row + 1} were different?` }),
    el("div", { class: "row" }, Object.entries(about.columns).filter(([name]) => view.columns.includes(name)).map(([name, kind]) => field(view, row, name, kind))),
    el("p", { class: "outcome", aria: { live: "polite" } }),
    own.length > 0 && button("as it was", () => edit(view, own.map((place) => [place, undefined]))),
    button("close", () => {
      view.row = null;
      view.page.refresh();
    })));
  const text = `Row ${row + 1}: ${view.words.decision(now.decisions[row])}, ${view.words.output.measure} ${number(now.probabilities[row], 3)}${own.length ? `, with ${counted(own.length, "cell")} changed` : ""}.`;
  const outcome = parts.whatIf.querySelector(".outcome");
  worded(outcome, text);
  if (view.opening) parts.whatIf.scrollIntoView({ block: "nearest" });
  view.opening = false;
  return null;
}

function field(view, row, name, kind) {
  const given = view.rows[row][view.columns.indexOf(name)];
  const place = `${row} ${name}`;
  const value = view.edits.get(place) ?? given ?? "";
  const change = (next) => edit(view, [[place, String(next) === String(given ?? "") ? undefined : next]]);
  if (Array.isArray(kind)) return choice(name, [...new Set([String(value), ...kind])], value, change);
  const input = el("input", { type: kind === "number" ? "number" : "text", step: "any", value, on: { change: () => change(input.value) } });
  return el("label", { class: "choice" }, el("span", { text: name }), input);
}

/** Cells get other values, or with undefined the ones that they were given. */
function edit(view, changes) {
  for (const [place, value] of changes) {
    if (value === undefined) view.edits.delete(place);
    else view.edits.set(place, value);
  }
  view.page.refresh();
}
