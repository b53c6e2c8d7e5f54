// Fronts: every client's model as a point, what each run offers, and what a step along a front costs.

import { button, el, put, renew, tick } from "../dom.js";
import { figure } from "../charts/figure.js";
import { Parallel } from "../charts/parallel.js";
import { Scatter } from "../charts/scatter.js";
import { tip } from "../charts/tip.js";
import { attainment, frontOf, hypervolume2, nondominated } from "../maths.js";
import { points } from "../runs.js";
import { counted, listed, number, signed, spreadOf } from "../words.js";

export const title = "Fronts";
export const bar = ["eval", "split", "seed", "round"];

export function mount(root, page) {
  let view = null;
  const { state } = page;
  return {
    async update() {
      const runs = page.runs;
      if (!runs.length) {
        view?.destroy();
        view = null;
        return put(root, el("p", { class: "soft", text: "Choose runs on the left: their fronts appear here." }));
      }
      const m = runs[0].entry.objectives.length;
      const kind = m === 1 ? "strips" : m === 2 ? "plane" : "many";
      if (view?.kind !== kind || view.m !== m) {
        view?.destroy();
        view = kind === "plane" ? plane(root, page) : kind === "many" ? many(root, page, m) : strips(root, page);
        Object.assign(view, { kind, m });
      }
      const { evaluation, split, round, seed } = page.view;
      const shown = await Promise.all(runs.map((run) => shownOf(run, page)));
      page.known = known(shown);
      root.dataset.round = round;
      root.dataset.split = split;
      root.dataset.eval = evaluation;
      await view.draw(shown, ranges(state));
      summary(root, shown, page);
    },
    unmount() {
      view?.destroy();
      page.known = null;
    },
  };
}

const kept = new Map();

/** A run's points as they are shown, made anew only where something changed. */
async function shownOf(run, page) {
  const version = [run.version, ...Object.values(page.view), page.state.get("only"), page.state.get("without")].join();
  const before = kept.get(run.id);
  if (before?.version === version) return before;
  const found = { ...filtered(await points(run, page.view), page), version, made: new Map() };
  kept.set(run.id, found);
  return found;
}

/** What is computed of a run's points, once. */
function once(one, key, make) {
  if (!one.made.has(key)) one.made.set(key, make());
  return one.made.get(key);
}

/** Without what was excluded, and with what is on each run's front. */
function filtered(one, page) {
  const { selection } = page;
  const finite = (i) => one.columns.every((column) => Number.isFinite(column[i]));
  const kept = [];
  const lost = [];
  for (let i = 0; i < one.count; i++) {
    if (!finite(i)) lost.push(i);
    else if (!selection.isFiltered() || selection.isShown(one.key(i))) kept.push(i);
  }
  const taken = (array) => (kept.length === one.count ? array : array.constructor.from(kept, (i) => array[i]));
  const columns = one.columns.map(taken);
  const found = { run: one.run, count: kept.length, seed: taken(one.seed), client: taken(one.client), round: taken(one.round), columns };
  found.front = nondominated(columns, one.run.maximise);
  found.key = (i) => `${one.run.id}:${found.seed[i]}:${found.client[i]}`;
  found.preference = kept.length === one.count ? one.preference : (i) => one.preference(kept[i]);
  found.lost = lost.map((i) => `seed ${one.seed[i]}, client ${one.client[i]}`);
  return found;
}

function known(all) {
  return (key) => {
    const [run, seed, client] = key.split(":");
    const one = all.find((each) => each.run.id === run);
    if (!one) return null;
    for (let i = 0; i < one.count; i++) {
      if (one.client[i] === Number(client) && one.seed[i] === Number(seed)) return one.columns.map((column) => column[i]);
    }
    return null;
  };
}

/** By objective [low, high]: what was brushed. */
function ranges(state) {
  const found = new Map();
  for (const part of (state.get("range") ?? "").split(",").filter(Boolean)) {
    const [j, ends] = part.split(":");
    found.set(Number(j), ends.split("~").map(Number));
  }
  return found;
}

function rangeText(found) {
  return [...found].map(([j, ends]) => `${j}:${ends.map((one) => Number(one.toPrecision(6))).join("~")}`).join(",");
}

/** Which points lie within all ranges, or are selected by name; null: no choice. */
function chosenOf(one, found, page) {
  if (!found.size && !page.selection.size()) return null;
  const asked = `${page.state.get("range")} ${page.state.get("sel")}`;
  if (one.chosen?.asked !== asked) one.chosen = { asked, is: choose(one, found, page) };
  return one.chosen.is;
}

function choose(one, found, page) {
  if (found.size) {
    const chosen = new Uint8Array(one.count).fill(1);
    for (const [j, [low, high]] of found) {
      const column = one.columns[j];
      for (let i = 0; i < one.count; i++) if (!(column[i] >= low && column[i] <= high)) chosen[i] = 0;
    }
    return chosen;
  }
  const chosen = new Uint8Array(one.count);
  for (let i = 0; i < one.count; i++) chosen[i] = page.selection.has(one.key(i)) ? 1 : 0;
  return chosen;
}

const MOST_KEYS = 500;

/** Brushing: ranges while it goes on; at its end the clients by name too, if they are not too many. */
function brushed(page, all, found, done) {
  const changes = { range: found.size ? rangeText(found) : null };
  if (done) {
    const keys = [];
    if (found.size) {
      for (const one of all) {
        const chosen = choose(one, found, page);
        for (let i = 0; i < one.count && keys.length <= MOST_KEYS; i++) if (chosen[i]) keys.push(one.key(i));
      }
    }
    page.state.set({ ...changes, sel: null });
    page.selection.set(keys.length <= MOST_KEYS ? keys : null);
    return;
  }
  page.state.set(changes);
}

function words(one, i) {
  const { names } = one.run;
  const preference = one.preference(i);
  return [
    `${one.run.entry.label}, client ${one.client[i]}, seed ${one.seed[i]}, round ${one.round[i]}`,
    ...names.map((name, j) => `${name} ${number(one.columns[j][i])}`),
    preference ? `wanted ${preference.map((w) => number(w, 2)).join(" : ")}` : "its preference is its own",
    one.front[i] ? "on its run's front" : dominator(one, i),
  ].join("\n");
}

function dominator(one, i) {
  const { maximise } = one.run;
  const better = (j, a, b) => (maximise[j] ? one.columns[j][a] >= one.columns[j][b] : one.columns[j][a] <= one.columns[j][b]);
  for (let k = 0; k < one.count; k++) {
    if (one.front[k] && one.columns.every((_, j) => better(j, k, i))) return `dominated by client ${one.client[k]}, seed ${one.seed[k]}`;
  }
  return "dominated";
}

function groupsOf(all, page, found, x, y) {
  return all.map((one) => ({
    id: one.run.id, label: one.run.entry.label, style: page.styles.get(one.run.id), xs: one.columns[x], ys: one.columns[y],
    front: one.front, chosen: chosenOf(one, found, page), words: (i) => words(one, i), key: one.key,
  }));
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

// -- two goals --------------------------------------------------------------------------------------------------------

function plane(root, page) {
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
    const { lines, bands } = outlines(all, surfaces, page, focus, up, part);
    const about = await all[0].run.about();
    if (about.known_front) lines.push({ points: about.known_front.map((p) => [p[part.x], p[part.y]]).sort((a, b) => a[0] - b[0]), dash: "4 4", kind: "known" });
    const wish = state.numbers("wish");
    const marks = wish.length === 2 ? [{ x: wish[0], y: wish[1], kind: "wish", label: "your wish" }] : [];
    const view = state.numbers("view");
    const box = found.size === 2 && found.get(part.x) && found.get(part.y) ? [found.get(part.x)[0], found.get(part.y)[0], found.get(part.x)[1], found.get(part.y)[1]] : null;
    part.scatter.draw({
      x: { title: names[part.x], maximise: up[0], reversed: !plain && !up[0] },
      y: { title: names[part.y], maximise: up[1], reversed: !plain && !up[1] },
      groups: groupsOf(all, page, found, part.x, part.y), lines, bands, marks, box,
      density: state.get("past") === "1" ? await past(page, part) : [],
      view: view.length === 4 ? view : null,
    });
    describe(shown, all, page, found, surfaces, part);
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

function outlines(all, surfaces, page, focus, up, part) {
  const [lines, bands] = [[], []];
  all.forEach((one, k) => {
    const style = page.styles.get(one.run.id);
    const { median, best, least, several } = surfaces[k];
    lines.push({ points: stairs(median, up), colour: style.colour, dash: style.dash });
    if (one.run.id !== focus.id || !median.length) return;
    const { objectives } = one.run.entry;
    const reference = [objectives[part.x].reference, objectives[part.y].reference];
    if (several && best.length && least.length) {
      const corner = [up[0] ? Math.min(...best.map((p) => p[0])) : Math.max(...best.map((p) => p[0])), up[1] ? Math.min(...least.map((p) => p[1])) : Math.max(...least.map((p) => p[1]))];
      bands.push({ points: [...stairs(best, up), ...stairs(least, up).reverse()], colour: style.colour, corner });
    } else if (!several) bands.push({ points: stairs(median, up, reference), colour: style.colour, kind: "volume" });
  });
  return { lines, bands };
}

/** The points of all rounds up to the one that is shown. */
async function past(page, part) {
  const { evaluation, split, round, seed } = page.view;
  return Promise.all(page.runs.map(async (run) => {
    const values = await run.values(evaluation, split);
    const before = values.lines.filter((line) => (round === "latest" || line.round < Number(round)) && (seed === "all" || Number(seed) === line.seed));
    const count = before.reduce((sum, line) => sum + line.clients, 0);
    const [xs, ys] = [new Float64Array(count), new Float64Array(count)];
    let at = 0;
    for (const { data, clients } of before) {
      xs.set(data.subarray(part.x * clients, (part.x + 1) * clients), at);
      ys.set(data.subarray(part.y * clients, (part.y + 1) * clients), at);
      at += clients;
    }
    return { xs, ys };
  }));
}

function describe(shown, all, page, found, surfaces, part) {
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
      (chosen === null ? "" : ` ${counted(chosen, "model")} in the box.`) +
      (lost.length ? ` Not finite, so not shown: ${listed(lost.slice(0, 8))}${lost.length > 8 ? " and others" : ""}.` : ""),
  );
  const front = all.flatMap(frontKeys);
  Object.assign(shown.root.dataset, { points: total, front: total > 5000 ? front.length : front.join(" "), chosen: chosen ?? "", names: names.join() });
  shown.setTable(["run", "seed", "client", "round", ...names, "wanted", "on the front"], () => tableRows(all));
}

function tableRows(all) {
  return all.flatMap((one) => Array.from({ length: one.count }, (_, i) => [
    one.run.entry.label, one.seed[i], one.client[i], one.round[i], ...one.columns.map((column) => column[i]),
    one.preference(i)?.map((w) => number(w, 2)).join(" : ") ?? "–", one.front[i] ? "yes" : "no",
  ]));
}

function frontKeys(one) {
  return once(one, "front", () => Array.from(one.front.keys()).filter((i) => one.front[i]).map(one.key));
}

function inside(chosen) {
  let count = 0;
  for (let i = 0; i < chosen.length; i++) count += chosen[i];
  return count;
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

function nearest(one, wish, part, up) {
  const on = Array.from(one.front.keys()).filter((i) => one.front[i]);
  if (!on.length) return null;
  const [xs, ys] = [one.columns[part.x], one.columns[part.y]];
  const spread = (column) => Math.max(...on.map((i) => column[i])) - Math.min(...on.map((i) => column[i])) || 1;
  const [wide, high] = [spread(xs), spread(ys)];
  const short = (i) => Math.max((up[0] ? wish[0] - xs[i] : xs[i] - wish[0]) / wide, (up[1] ? wish[1] - ys[i] : ys[i] - wish[1]) / high);
  const i = on.reduce((a, b) => (short(b) < short(a) ? b : a));
  return { one, i, rate: rateAt(one, on, i, part) };
}

/** The trade-off rate between the two neighbours on a front. */
function rateAt(one, on, i, part) {
  const { names } = one.run;
  const [xs, ys] = [one.columns[part.x], one.columns[part.y]];
  const order = [...on].sort((a, b) => xs[a] - xs[b]);
  const at = order.indexOf(i);
  const [before, after] = [order[Math.max(0, at - 1)], order[Math.min(order.length - 1, at + 1)]];
  const [dx, dy] = [xs[after] - xs[before], ys[after] - ys[before]];
  if (!dx || !dy) return "The front has no neighbours here, so no rate is known.";
  return `Here ${signed(0.01, 2)} of ${names[part.x]} comes with ${signed((dy / dx) * 0.01)} of ${names[part.y]}.`;
}

// -- three goals and more ---------------------------------------------------------------------------------------------

function many(root, page, m) {
  const part = { kind: "many", panels: [], all: [] };
  const hover = tip();
  const grid = el("div", { class: "matrix", style: { "grid-template-columns": `repeat(${m - 1}, minmax(0, 1fr))` } });
  for (let y = 1; y < m; y++) {
    for (let x = 0; x < m - 1; x++) {
      if (x >= y) {
        grid.append(el("div"));
        continue;
      }
      const on = {
        brush(box, done) {
          const found = ranges(page.state);
          for (const j of [x, y]) found.delete(j);
          if (box) found.set(x, [box[0], box[2]]).set(y, [box[1], box[3]]);
          brushed(page, part.all, found, done);
        },
        pick: (group, i) => page.selection.toggle(group.key(i)),
        hover: (text, at) => hover.show(text, at && offset(panel.root, at, grid)),
        read: page.say,
      };
      const panel = new Scatter({ label: `objectives ${x + 1} and ${y + 1}`, height: Math.max(130, Math.min(240, 720 / (m - 1))), tight: true, on });
      part.panels.push({ x, y, panel });
      grid.append(el("div", {}, el("p", { class: "soft pair", data: { x, y } }), panel.root));
    }
  }
  const pairs = figure({ title: "Every pair of goals", name: "pairs", vector: () => part.panels[0].panel.vector() });
  pairs.plot.append(grid, hover.root);
  const parallel = new Parallel({
    on: {
      brush(j, ends, done) {
        const found = ranges(page.state);
        found.delete(j);
        if (ends) found.set(j, ends);
        brushed(page, part.all, found, done);
      },
      read: page.say,
    },
  });
  const across = figure({ title: "All goals at once", name: "parallel", vector: () => parallel.picture });
  across.plot.append(parallel.root);
  const legend = el("div");
  put(root, legend, across.root, pairs.root, el("section", { class: "summary" }));
  part.destroy = () => {
    for (const { panel } of part.panels) panel.destroy();
    parallel.destroy();
  };
  part.draw = async (all, found) => {
    part.all = all;
    const { names, maximise } = all[0].run;
    renew(legend, page.legendKey(), () => page.legend());
    for (const { x, y, panel } of part.panels) {
      panel.root.previousSibling.textContent = `${names[y]} over ${names[x]}`;
      const box = found.get(x) && found.get(y) ? [found.get(x)[0], found.get(y)[0], found.get(x)[1], found.get(y)[1]] : null;
      const side = (j) => ({ title: names[j], maximise: maximise[j], reversed: !maximise[j] });
      panel.draw({ x: side(x), y: side(y), groups: groupsOf(all, page, found, x, y), box });
    }
    parallel.draw({ names, maximise, groups: all.map((one) => ({ one, style: page.styles.get(one.run.id), chosen: chosenOf(one, found, page) })), ranges: found });
    describeMany([pairs, across], all, page, found);
  };
  return part;
}

function offset(node, [x, y], within) {
  const [a, b] = [node.getBoundingClientRect(), within.getBoundingClientRect()];
  return [a.left - b.left + x, a.top - b.top + y];
}

function describeMany(figures, all, page, found) {
  const total = all.reduce((sum, one) => sum + one.count, 0);
  const on = all.map((one) => one.front.reduce((a, b) => a + b, 0));
  const chosen = found.size ? all.reduce((sum, one) => sum + inside(chosenOf(one, found, page)), 0) : null;
  const text = `${counted(total, "model")}, ${page.inWords()}. Better is up, and to the right. Not dominated in all goals together: ${listed(all.map((one, k) => `${one.run.entry.label} ${on[k]} of ${one.count}`))}.` + (chosen === null ? "" : ` ${counted(chosen, "model")} brushed.`);
  const front = all.flatMap(frontKeys);
  for (const shown of figures) {
    shown.caption(text);
    Object.assign(shown.root.dataset, { points: total, front: front.join(" "), chosen: chosen ?? "" });
    shown.setTable(["run", "seed", "client", "round", ...all[0].run.names, "wanted", "on the front"], () => tableRows(all));
  }
}

// -- one goal: no front, but clients ----------------------------------------------------------------------------------

function strips(root, page) {
  const hover = tip();
  const part = { kind: "strips", scatter: null };
  part.scatter = new Scatter({ label: "Clients of each run", height: 320, on: { pick: (group, i) => page.selection.toggle(group.key(i)), hover: (text, at) => hover.show(text, at), read: page.say } });
  const shown = figure({ title: "Clients", name: "clients", vector: () => part.scatter.vector() });
  shown.plot.append(part.scatter.root, hover.root);
  const legend = el("div");
  put(root, legend, shown.root, el("section", { class: "summary" }));
  part.destroy = () => part.scatter.destroy();
  part.draw = async (all, found) => {
    renew(legend, page.legendKey(), () => page.legend());
    const name = all[0].run.names[0];
    const groups = groupsOf(all, page, found, 0, 0).map((group, k) => ({ ...group, ys: group.xs, xs: Float64Array.from(group.xs, (_, i) => k + ((i * 0.618) % 1) * 0.6 + 0.2) }));
    part.scatter.draw({ x: { title: "runs, in the order of the legend" }, y: { title: name, maximise: all[0].run.maximise[0] }, groups });
    shown.caption(`One goal, so there is no front: each mark is a client, ${page.inWords()}. ${all.map((one) => `${one.run.entry.label}: ${spreadOf(one.columns[0])}`).join("; ")}.`);
    shown.setTable(["run", "seed", "client", "round", name, "wanted", "on the front"], () => tableRows(all));
    Object.assign(shown.root.dataset, { points: all.reduce((sum, one) => sum + one.count, 0) });
  };
  return part;
}

// -- beside every picture ---------------------------------------------------------------------------------------------

function summary(root, all, page) {
  const node = root.querySelector(".summary");
  if (!node) return;
  put(node, all.map((one) => {
    const warnings = one.run.entry.attack ? [`attacked: ${one.run.entry.attack}`] : [];
    return warnings.map((text) => el("p", { class: "soft", text: `${one.run.entry.label}, ${text}` }));
  }));
}
