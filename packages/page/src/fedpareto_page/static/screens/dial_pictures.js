// What the dial shows beside the rows: where on the front it stands, and counts by group.

import { button, choice, el, filled, renew, worded } from "../dom.js";
import { counted, number, signed } from "../words.js";
import { hundredths, inWords, weightText } from "./dial_control.js";

/** Steps of the weight that the strips run along. */
export const STEPS = 100;

/** Which goal's weight the strips run along. */
export function along({ page, about }) {
  return Math.max(0, about.objectives.findIndex((one) => one.name === page.state.get("along")));
}

/** How many rows are a yes. */
export function yesOf(answer) {
  return answer.decisions.reduce((sum, one) => sum + (one === 1), 0);
}

/** The front, and the points of the dial and the pins on it. */
export function drawFront(view, { weights, now, pinned }) {
  const { parts, about, page } = view;
  const { names, front, shownFront } = parts;
  const place = (key, otherwise) => Math.max(0, names.indexOf(page.state.get(key) ?? names[otherwise]));
  const [x, y] = [place("x", 0), place("y", names.length > 1 ? 1 : 0)];
  if (names.length > 2) {
    renew(parts.axes, `${x} ${y}`, () => [["x", "across", x], ["y", "up", y]].map(([key, text, at]) => choice(text, names, names[at], (name) => page.state.set({ [key]: name }))));
  }
  view.group ??= groupOf(about, names);
  const { group } = view;
  const up = about.objectives.map((one) => one.maximise);
  // Names stand at three sides, so that places on one another can be told apart.
  const spots = [[now, "now", "here"], [pinned[0], "pin", "A", 9, 17], [pinned[1], "pin", "B", -19, 17]].filter(([one]) => one?.values);
  const marks = spots.map(([one, kind, label, dx, dy]) => ({ x: one.values[x], y: one.values[y], kind, label, dx, dy }));
  if (front.shownFor === `${x} ${y}`) {
    front.scene.marks = marks;
    front.top();
  } else front.draw({
    x: { title: names[x], maximise: up[x], reversed: !up[x] },
    y: { title: names[y], maximise: up[y], reversed: !up[y] },
    groups: [{ ...group, xs: group.columns[x], ys: group.columns[y] }],
    marks,
  });
  front.shownFor = `${x} ${y}`;
  const onFront = about.points.filter((one) => one.on_front).length;
  shownFront.caption(`${about.any ? `${counted(about.points.length, "preference")} measured` : `${counted(about.points.length, "client")}`} on held-out rows, ${onFront} on the front (filled). The dial is at ${inWords(names, weights)}${now.values ? `: ${names.map((name, j) => `${name} ${number(now.values[j])}`).join(", ")}` : ""}.`, true);
  shownFront.setTable([...names.map((name) => `weight of ${name}`), ...names, "client", "on the front"], () => about.points.map((one) => [...(one.preference ?? names.map(() => null)), ...one.values, one.client, one.on_front ? "yes" : "no"]));
}

function groupOf(about, names) {
  const points = about.points.filter((one) => one.values.every(Number.isFinite));
  return {
    id: "front", label: "front", points, style: { colour: "var(--c0)", shape: 0, dash: "" },
    columns: names.map((_, j) => Float64Array.from(points, (one) => one.values[j])),
    front: Uint8Array.from(points, (one) => one.on_front), chosen: null,
    words: (i) => [
      points[i].preference ? inWords(names, hundredths(points[i].preference)).replace(/^/, "wanted ") : `client ${points[i].client}`,
      ...names.map((name, j) => `${name} ${number(points[i].values[j])}`),
      about.any ? "" : `client ${points[i].client}`,
    ].filter(Boolean).join("\n"),
  };
}

/** The column whose groups are counted. */
export function groupColumn({ about, page }) {
  const asked = page.state.get("group");
  return about.grouped.includes(asked) ? asked : about.grouped[0];
}

/** Of a group's rows, those with yes. */
export function shareOf({ rows, yes }) {
  return rows ? yes / rows : NaN;
}

/** The largest difference between the shares of two groups. */
function gap(groups) {
  const shares = Object.values(groups).map(shareOf).filter(Number.isFinite);
  return Math.max(...shares) - Math.min(...shares);
}

/** Counts of a column's groups, and how they moved. */
export function drawGroups(view, { now, base, against }) {
  const { parts, about, page } = view;
  const column = groupColumn(view);
  if (!view.words.isYesOrNo) return;
  if (!column) {
    renew(parts.groups, "none", () => el("p", { class: "soft", text: "No column of these rows has groups to count." }));
    return;
  }
  const [groups, before] = [now.groups[column], base?.groups[column]];
  const names = Object.keys(groups);
  renew(parts.groups, JSON.stringify([column, names, against, Boolean(before)]), () => {
    const figure = () => el("td", { class: "figure-cell" });
    parts.counts = names.map((name) => el("tr", { data: { group: name } }, el("th", { scope: "row", text: name }), figure(), figure(), el("td", { class: "chance" }, el("span", { class: "bar" }), el("span", { class: "said" })), before && figure()));
    parts.gap = el("p", { class: "gap" });
    const heads = [column, "rows", "yes", "share of yes", before && `against ${against}`].filter(Boolean);
    return [
      choice("groups by", about.grouped.map((one) => [one, about.sensitive.includes(one) ? `${one} (sensitive)` : one]), column, (value) => page.state.set({ group: value }), { name: "group" }),
      small("Decisions by group", heads, parts.counts),
      parts.gap,
    ];
  });
  names.forEach((name, i) => {
    const { rows, yes } = groups[name];
    const share = shareOf(groups[name]);
    const cells = parts.counts[i].children;
    filled(parts.counts[i], { data: { rows, yes } });
    worded(cells[1], number(rows));
    if (worded(cells[2], number(yes))) cells[3].firstChild.style.backgroundSize = `${100 * (share || 0)}% 100%`;
    worded(cells[3].lastChild, number(share, 3));
    if (before) worded(cells[4], before[name] ? signed(share - shareOf(before[name]), 3) : "–");
  });
  parts.gap.dataset.gap = gap(groups);
  worded(parts.gap, `Largest difference between two groups: ${number(gap(groups), 3)}${before ? `, ${signed(gap(groups) - gap(before), 3)} against ${against}` : ""}.`);
}

/** A table with a head, in a region that scrolls. */
export function small(caption, heads, lines) {
  const head = heads.map((text, i) => el("th", { scope: "col", text, class: i ? "figure-cell" : null }));
  const whole = el("table", {}, el("caption", { class: "hidden", text: caption }), el("thead", {}, el("tr", {}, head)), el("tbody", {}, lines));
  return el("div", { class: "scroll", tabindex: "0", role: "region", aria: { label: caption } }, whole);
}

/** The shares of yes of each group all along the dial. */
export function drawStrips(view, weights) {
  const { parts, strips: found } = view;
  const j = along(view);
  const column = groupColumn(view);
  if (!view.words.isYesOrNo || !column) return;
  const { names, series, gaps, highest } = curvesOf(found, column);
  parts.curves.draw({ x: { title: `weight of ${parts.names[j]}`, domain: [0, 1] }, y: { title: "share of yes", domain: [0, highest] }, series, at: weights[j] / 100 });
  renew(parts.legend, [column, ...names].join(), () => names.map((name, k) => el("li", {}, el("span", { class: "patch", style: { "--own": `var(--c${k})` } }), `${column} ${name}`)));
  const [least, most] = [Math.min(...gaps), Math.max(...gaps)];
  const where = (value) => (gaps.indexOf(value) / STEPS).toFixed(2);
  parts.shownCurves.caption(`Share of yes by ${column}, from weight 0 to 1 of ${parts.names[j]}. The largest difference between two groups is smallest, ${number(least, 3)}, at ${where(least)}, and largest, ${number(most, 3)}, at ${where(most)}; here it is ${number(gaps[weights[j]], 3)}.`, true);
  parts.shownCurves.setTable([`weight of ${parts.names[j]}`, ...names.map((name) => `yes, ${name}`)], () => found.groups.map((one, i) => [i / STEPS, ...names.map((name) => one[column][name].yes)]));
}

/** By column, what the curves are made of: the same at every place of the dial. */
function curvesOf(found, column) {
  found.curves ??= new Map();
  if (found.curves.has(column)) return found.curves.get(column);
  const names = Object.keys(found.groups[0][column]);
  const xs = Float64Array.from(found.groups, (_, i) => i / STEPS);
  const series = names.map((name, k) => {
    const ys = Float64Array.from(found.groups, (one) => shareOf(one[column][name]));
    return { id: name, label: name, xs, ys, colour: `var(--c${k})`, version: `${found.key} ${column}`, words: (i) => `${column} ${name}\nweight ${xs[i].toFixed(2)}: share of yes ${number(ys[i], 3)}` };
  });
  const highest = Math.max(0.05, ...series.flatMap((one) => Array.from(one.ys).filter(Number.isFinite)));
  const made = { names, series, gaps: found.groups.map((one) => gap(one[column])), highest };
  found.curves.set(column, made);
  return made;
}

// -- pins -------------------------------------------------------------------------------------------------------------

/** Two places to remember. */
export function pinButtons(view, { pins }) {
  const { parts, page: { state } } = view;
  return ["a", "b"].flatMap((key, i) => {
    const name = key.toUpperCase();
    const at = pins[i];
    return [
      button(at ? `move pin ${name} here` : `pin ${name} here`, () => state.set({ [key]: weightText(view.at) })),
      at && button(`go to ${name}`, () => state.set({ w: weightText(at) }), { title: inWords(parts.names, at) }),
      at && button(`remove ${name}`, () => state.set({ [key]: null })),
    ];
  });
}
