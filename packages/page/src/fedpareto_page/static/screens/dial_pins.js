// Two places of the dial side by side.

import { el, renew, worded } from "../dom.js";
import { counted, number, signed } from "../words.js";
import { groupColumn, shareOf, small, yesOf } from "./dial_pictures.js";

/** What lies between two places of the dial: a table that stays, with other numbers at every step. */
export function drawPins(view, scene) {
  const { parts } = view;
  const { weights, pins, now, pinned } = scene;
  const sides = [["A", pins[0], pinned[0]], ["B", pins[1], pinned[1]], ["here", weights, now]].filter(([, at]) => at);
  if (sides.length < 2) return void renew(parts.pinned, "none", () => []);
  const [from, to] = sides;
  const lines = comparedLines(view, now);
  renew(parts.pinned, JSON.stringify([sides.map(([name]) => name), lines.map(({ name }) => name)]), () => {
    parts.differ = el("h3");
    parts.compared = lines.map(() => [...sides, null].map(() => el("td", { class: "figure-cell" })));
    const heads = ["compared", ...sides.map(([name]) => (name === "here" ? name : `pin ${name}`)), `${to[0]} − ${from[0]}`];
    const rows = lines.map(({ name }, i) => el("tr", {}, el("th", { scope: "row", text: name }), parts.compared[i]));
    return [parts.differ, small("Pins compared", heads, rows)];
  });
  lines.forEach(({ of, decimals }, i) => {
    const values = sides.map((side) => of(side));
    const difference = Number.isFinite(values[0]) && Number.isFinite(values[1]) ? signed(values[1] - values[0], decimals) : "–";
    [...values.map((one) => number(one, decimals)), difference].forEach((text, j) => worded(parts.compared[i][j], text));
  });
  const crossed = from[2].decisions.filter((one, row) => one !== to[2].decisions[row]).length;
  worded(parts.differ, `Pin ${from[0]} and ${to[0] === "here" ? "here" : `pin ${to[0]}`}: ${counted(crossed, "decision")} differ`);
}

/** What is compared of places: {name, of([name, weights, answer]), decimals}. */
function comparedLines(view, now) {
  const { names } = view.parts;
  const column = view.words.isYesOrNo ? groupColumn(view) : null;
  return [
    ...names.map((name, j) => ({ name: `weight of ${name}`, of: ([, at]) => at[j] / 100, decimals: 2 })),
    ...names.map((name, j) => ({ name: `${name}, held out`, of: ([, , one]) => one.values?.[j] ?? NaN, decimals: 4 })),
    ...(view.words.isYesOrNo ? [{ name: "rows with yes", of: ([, , one]) => yesOf(one), decimals: 0 }] : []),
    ...Object.keys(column ? now.groups[column] : {}).map((name) => ({ name: `share of yes, ${name}`, of: ([, , one]) => shareOf(one.groups[column][name]), decimals: 3 })),
  ];
}
