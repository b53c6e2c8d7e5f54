// Fronts of two goals: a plane with attainment surfaces over seeds, a wish and what a step costs.

import { button, el, isSame, put, renew, tick } from "../dom.js";
import { figure } from "../charts/figure.js";
import { Scatter } from "../charts/scatter.js";
import { tip } from "../charts/tip.js";
import { attainment, frontOf, hypervolume2, nondominated } from "../dominance.js";
import { counted, listed, number, signed, spreadOf } from "../words.js";
import { brushed, chosenOf, frontKeys, groupsOf, inside, once, tableRows } from "./fronts_points.js";

/** Two goals. */
export function plane(root, page) {
  const { state } = page;
  const part = {
    scatter: null, shapes: null, wishing: false,
    kind: "plane",
    destroy: () => part.scatter.destroy(),
  };
  const hover = tip();
  part.scatter = new Scatter({
    label: "Fronts. Arrow keys walk along a front, page keys change the run, Enter selects, plus and minus zoom.",
    height: Math.max(340, Math.min(560, innerHeight - 330)),
    on: {
      brush(box, done) {
        const found = new Map(box ? [[part.x, [box[0], box[2]]], [part.y, [box[1], box[3]]]] : []);
        brushed(page, part.all, found, done);
      },
      zoom: (view) => state.set({ view: view && view.map((one) => Number(one.toPrecision(6))).join(",") }),
      pick: (group, i) => page.selection.toggle(group.key(i)),
      hover: (text, at) => hover.show(text, at),
      read: page.say,
      wish(x, y) {
        if (!state.get("wishing")) return false;
        state.set({ wish: [x, y].map((one) => Number(one.toPrecision(5))).join(","), wishing: null });
        return true;
      },
    },
  });
  const shown = figure({ title: "Every client's model", name: "fronts", vector: () => part.scatter.vector(), paper: page.paper("fronts") });
  const [controls, legend, advice] = [el("div", { class: "row" }), el("div"), el("div", { class: "advice", aria: { live: "polite" } })];
  shown.plot.append(part.scatter.root, hover.root);
  put(root, legend, controls, shown.root, advice, el("section", { class: "summary" }));

  part.draw = async (all, found) => {
    part.all = all;
    const { names, maximise } = all[0].run;
    part.x = Math.max(0, names.indexOf(state.get("x") ?? names[0]));
    part.y = Math.max(0, names.indexOf(state.get("y") ?? names[1]));
    const up = [maximise[part.x], maximise[part.y]];
    const plain = state.get("plain") === "1";
    const focus = focused(page);
    renew(legend, page.legendKey(focus.id), () => page.legend((run) => state.set({ focus: state.get("focus") === run.id ? null : run.id }), (run) => run.id === focus.id));
    const asked = ["past", "plain", "wishing", "view", "range"].map((key) => Boolean(state.get(key)));
    renew(controls, [...asked, part.x, part.y].join(), () => planeControls(page, names, part));
    const surfaces = all.map((one) => once(one, `surfaces ${part.x} ${part.y}`, () => surfacesOf(one, part.x, part.y, up)));
    const { lines, bands } = outlined(all, surfaces, await all[0].run.about(), page, focus, up, part);
    const wish = state.numbers("wish");
    const held = await heldAgainst(all, page, part);
    const marks = [...held, ...(wish.length === 2 ? [{ x: wish[0], y: wish[1], kind: "wish", label: "your wish" }] : [])];
    const view = state.numbers("view");
    const box = found.size === 2 && found.get(part.x) && found.get(part.y) ? [found.get(part.x)[0], found.get(part.y)[0], found.get(part.x)[1], found.get(part.y)[1]] : null;
    part.scatter.draw({
      x: { title: names[part.x], maximise: up[0], reversed: !plain && !up[0] },
      y: { title: names[part.y], maximise: up[1], reversed: !plain && !up[1] },
      groups: groupsOf(all, page, found, part.x, part.y), lines, bands, marks, box,
      density: state.get("past") === "1" ? await past(page, part) : [],
      view: view.length === 4 ? view : null,
    });
    describe(shown, all, page, found, surfaces, part, held);
    renew(advice, [wish, part.x, part.y, all.map((one) => one.version)].join(), () => [wish.length === 2 && advised(all, wish, part, names, up)]);
  };
  return part;
}

function focused(page) {
  return page.runs.find((run) => run.id === page.state.get("focus")) ?? page.runs[0];
}

function planeControls(page, names, part) {
  const { state } = page;
  const flip = () => state.set({ x: names[part.y], y: names[part.x] });
  return [
    button("swap axes", flip),
    tick("earlier rounds", state.get("past") === "1", (on) => state.set({ past: on ? "1" : null })),
    tick("axes as they are", state.get("plain") === "1", (on) => state.set({ plain: on ? "1" : null })),
    button(state.get("wishing") ? "click where you wish to be …" : "what do I wish?", () => state.set({ wishing: state.get("wishing") ? null : "1" }), { aria: { pressed: String(Boolean(state.get("wishing"))) } }),
    (state.get("view") || state.get("range")) && button("whole picture", () => state.set({ view: null, range: null, sel: null })),
  ];
}

/** Of each seed its front; of several the median attainment surface and the band around it. */
function surfacesOf(one, x, y, up) {
  const seeds = [...new Set(one.seed)];
  const fronts = seeds.map((seed) => {
    const own = (column) => (seeds.length === 1 ? column : column.filter((_, i) => one.seed[i] === seed));
    return frontOf(own(one.columns[x]), own(one.columns[y]), up);
  });
  const several = seeds.length > 1;
  return {
    seeds, fronts, several,
    median: several ? attainment(fronts, 0.5, up) : (fronts[0] ?? []),
    best: several ? attainment(fronts, 0.25, up) : [],
    least: several ? attainment(fronts, 0.75, up) : [],
  };
}

/** The lines and bands of the plane: the same ones as long as surfaces, colours and focus are, so that they stay drawn. */
function outlined(all, surfaces, about, page, focus, up, part) {
  const looks = all.map((one) => Object.values(page.styles.get(one.run.id)).join());
  const key = [...surfaces, ...looks, focus.id, about];
  if (isSame(part.outlined?.key, key)) return part.outlined;
  const found = { key, ...outlines(all, surfaces, page, focus, up, part) };
  if (about.known_front) found.lines.push({ points: about.known_front.map((p) => [p[part.x], p[part.y]]).sort((a, b) => a[0] - b[0]), dash: "4 4", kind: "known" });
  return (part.outlined = found);
}

function outlines(all, surfaces, page, focus, up, part) {
  const [lines, bands] = [[], []];
  all.forEach((one, k) => {
    const style = page.styles.get(one.run.id);
    const { median, best, least, several } = surfaces[k];
    lines.push({ points: stairs(median, up), colour: style.colour, dash: style.dash });
    if (one.run.id !== focus.id || !median.length) return;
    const { objectives } = one.run.entry;
    const reference = [objectives[part.x].reference, objectives[part.y].reference];
    // What a quarter of the seeds attain, without what three quarters do.
    if (several) bands.push({ outlines: [best, least].filter((one) => one.length).map((one) => stairs(one, up, reference)), colour: style.colour });
    else bands.push({ outlines: [stairs(median, up, reference)], colour: style.colour, kind: "volume" });
  });
  return { lines, bands };
}

/** The points of all rounds up to the one that is shown. */
async function past(page, part) {
  const { evaluation, split, round, seed } = page.view;
  return Promise.all(page.runs.map(async (run) => {
    const values = await run.values(evaluation, split);
    const isWanted = (one, when) => (round === "latest" || when < Number(round)) && (seed === "all" || Number(seed) === one);
    return { xs: values.all(part.x, isWanted), ys: values.all(part.y, isWanted) };
  }));
}

/** What runs are held against on the rows that they were tested on: means over seeds and clients; none if rows differ. */
async function heldAgainst(all, page, part) {
  const { split, seed: chosen } = page.view;
  if (split !== all[0].run.entry.held_out) return [];
  const known = {};
  for (const { run } of all) {
    for (const [name, seeds] of Object.entries((await run.about()).references ?? {})) {
      for (const [seed, points] of Object.entries(seeds)) {
        if (chosen !== "all" && seed !== String(chosen)) continue;
        const before = ((known[name] ??= {})[seed] ??= points);
        if (name !== "central" && JSON.stringify(before) !== JSON.stringify(points)) return [];
      }
    }
  }
  const mean = (points, j) => average(points.map((point) => point[j] ?? NaN));
  return Object.entries(known).map(([label, seeds], k) => {
    const [x, y] = [part.x, part.y].map((j) => average(Object.values(seeds).map((points) => mean(points, j))));
    return { x, y, label, dy: k % 2 ? 15 : -7 };
  }).filter((one) => Number.isFinite(one.x) && Number.isFinite(one.y));
}

function describe(shown, all, page, found, surfaces, part, held) {
  const total = all.reduce((sum, one) => sum + one.count, 0);
  const { names, entry, maximise } = all[0].run;
  const up = [maximise[part.x], maximise[part.y]];
  const reference = [entry.objectives[part.x].reference, entry.objectives[part.y].reference];
  const volumes = all.map((one, k) => [one, once(one, `volumes ${part.x} ${part.y}`, () => surfaces[k].fronts.map((front) => hypervolume2(front, reference, up)))]);
  const best = [...volumes].sort((a, b) => average(b[1]) - average(a[1]));
  const chosen = found.size ? all.reduce((sum, one) => sum + inside(chosenOf(one, found, page)), 0) : null;
  const lead = best.length > 1 ? ` Largest area: ${best[0][0].run.entry.label}, ${spreadOf(best[0][1])}, then ${best[1][0].run.entry.label}, ${spreadOf(best[1][1])}; the shelf says whether seeds support the difference.` : ` Its area is ${spreadOf(best[0][1])}.`;
  const lines = surfaces[0].several ? "Lines are what half of the seeds attain; the band of the run in focus lies between three quarters and one quarter of them." : "Lines join each run's best trade-offs; the shaded area is the hypervolume of the run in focus.";
  const lost = all.flatMap((one) => one.lost.map((text) => `${one.run.entry.label}: ${text}`));
  shown.caption(
    `${counted(total, "model")} of ${counted(all.length, "run")}, ${page.inWords()}. Filled marks are not dominated within their run. ${lines}${lead}` +
      (held.length ? ` Crosses are what models are held against on the same rows: ${listed(held.map((one) => `${one.label} (${number(one.x)}, ${number(one.y)})`))}.` : "") +
      (chosen === null ? "" : ` ${counted(chosen, "model")} in the box.`) +
      (lost.length ? ` Not finite, so not shown: ${listed(lost.slice(0, 8))}${lost.length > 8 ? " and others" : ""}.` : ""),
  );
  const front = all.flatMap(frontKeys);
  Object.assign(shown.root.dataset, { points: total, front: total > 5000 ? front.length : front.join(" "), chosen: chosen ?? "", names: names.join() });
  shown.setTable(["run", "seed", "client", "round", ...names, "wanted", "on the front"], () => tableRows(all));
}

function average(values) {
  return values.reduce((a, b) => a + b, 0) / Math.max(1, values.length);
}

/** What comes nearest to a wish, and what a step from there costs. */
function advised(all, wish, part, names, up) {
  const near = all.map((one) => nearest(one, wish, part, up)).filter(Boolean);
  return el("div", { class: "callout" }, el("h2", { text: `Nearest to your wish of ${names[part.x]} ${number(wish[0])} and ${names[part.y]} ${number(wish[1])}` }),
    el("ul", {}, near.map(({ one, i, rate }) => el("li", { text: `${one.run.entry.label}: client ${one.client[i]}, seed ${one.seed[i]}, with ${names[part.x]} ${number(one.columns[part.x][i])} and ${names[part.y]} ${number(one.columns[part.y][i])}. ${rate}` }))));
}

/** The nearest of each seed's own front: models of two seeds are no choice that anybody has. */
function nearest(one, wish, part, up) {
  const [xs, ys] = [one.columns[part.x], one.columns[part.y]];
  const spread = (column) => Math.max(...column) - Math.min(...column) || 1;
  const [wide, high] = [spread(xs), spread(ys)];
  const short = (i) => Math.max((up[0] ? wish[0] - xs[i] : xs[i] - wish[0]) / wide, (up[1] ? wish[1] - ys[i] : ys[i] - wish[1]) / high);
  const bySeed = [...new Set(one.seed)].map((seed) => {
    const own = Array.from(one.seed.keys()).filter((i) => one.seed[i] === seed);
    const on = nondominated([xs, ys].map((column) => own.map((i) => column[i])), up);
    const front = own.filter((_, k) => on[k]);
    const i = front.reduce((a, b) => (short(b) < short(a) ? b : a), front[0]);
    return { i, rate: rateAt(xs, ys, front, i) };
  }).filter(({ i }) => i !== undefined);
  if (!bySeed.length) return null;
  const { i } = bySeed.reduce((a, b) => (short(b.i) < short(a.i) ? b : a));
  return { one, i, rate: rated(one.run.names, part, bySeed.map(({ rate }) => rate).filter(Number.isFinite)) };
}

/** What the second goal changes by for each unit of the first, between the two neighbours on a front; NaN: unknown. */
function rateAt(xs, ys, front, i) {
  const order = [...front].sort((a, b) => xs[a] - xs[b]);
  const at = order.indexOf(i);
  const [before, after] = [order[Math.max(0, at - 1)], order[Math.min(order.length - 1, at + 1)]];
  return (ys[after] - ys[before]) / (xs[after] - xs[before]);
}

function rated(names, part, rates) {
  if (!rates.length) return "Its front has no neighbours here in any seed, so no rate is known.";
  const told = rates.map((rate) => signed(rate * 0.01));
  const seeds = rates.length > 1 ? ` on average (seed by seed ${told.join(", ")})` : "";
  return `Here +0.01 of ${names[part.x]} comes with ${signed((rates.reduce((a, b) => a + b, 0) / rates.length) * 0.01)} of ${names[part.y]}${seeds}.`;
}

/** The best that can be reached at each point: a staircase through the corners of a front. */
function stairs(front, [upX, upY], close = null) {
  if (!front.length) return [];
  const found = [];
  const order = upX ? [...front].reverse() : front;
  order.forEach(([x, y], i) => {
    if (i) found.push([x, order[i - 1][1]]);
    found.push([x, y]);
  });
  if (close) {
    found.unshift([order[0][0], close[1]]);
    found.push([close[0], order[order.length - 1][1]], [close[0], close[1]]);
  }
  return found;
}
