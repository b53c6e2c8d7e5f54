// Rounds: hypervolume and every other recorded number, against rounds, bytes or time; sent and trained always named.

import { Course } from "../curves.js";
import { choice, el, put, renew } from "../dom.js";
import { figure } from "../charts/figure.js";
import { Lines } from "../charts/lines.js";
import { tip } from "../charts/tip.js";
import { extent, smooth } from "../maths.js";
import { bytes, counted, listed, number, time } from "../words.js";

export const bar = ["split", "seed", "round"];

/** What a run can be read over: how it is called, and whether a line has it itself or the sum of the lines before. */
const AXES = {
  round: { title: "rounds", whole: true },
  bytes: { title: "bytes sent, both ways", sum: ["bytes_up", "bytes_down"], words: bytes },
  updates: { title: "replies so far", sum: ["replies"] },
  seconds: { title: "seconds on this machine", sum: ["seconds"], words: time },
  clock: { title: "simulated seconds", words: time },
  joules: { title: "energy of all clients in joules" },
  epsilon: { title: "ε so far" },
  at: { title: "minutes since the first round", words: (minutes) => time(minutes * 60) },
};
const HIDDEN = new Set(["seed", "round", "at", "clock", "joules", "hypervolume", "trained_hypervolume", "bytes_up", "bytes_down", "seconds", "replies", "failures", "staleness", "epsilon", "improved"]);
const OF_GOALS = /^(sent|trained)\./;
const COUNTED = { improved: "share whose loss did not rise", epsilon: "ε so far", staleness: "rounds that replies were late", failures: "missing replies", bytes_up: "bytes up", seconds: "seconds a round" };

const MOST_MARKS = 400;
/** Milliseconds after which charts whose turn has not come are drawn, where no further rounds come. */
const SOON = 500;

const KEY = el("p", { class: "soft", text: "Solid: sent by the server. Dotted: trained, after the clients' own steps. Dashed: what nine of ten clients have at least." });

export function mount(root, page) {
  const controls = el("div", { class: "row" });
  const legend = el("div");
  const grid = el("div", { class: "columns" });
  const charts = new Map();
  let courses = new Map();
  let due = null;
  /** Whether what is new of a chart is within a column of pixels that is drawn already, or out of sight. */
  const canWait = (chart, total) => {
    if (!chart || root.dataset.over !== "round") return false;
    const { x } = chart.lines;
    return !x || (total - chart.total) * (x.range[1] - x.range[0]) < x.domain[1] - x.domain[0];
  };
  /** Of charts of which all can wait, the one that has waited longest: each picture that changes is kept twice for a while. */
  const inTurn = (picked, total) => {
    const waiting = picked.filter((kind) => charts.get(keyOf(kind))?.total !== total);
    if (!waiting.every((kind) => canWait(charts.get(keyOf(kind)), total))) return picked;
    if (waiting.length > 1) due = setTimeout(page.look, SOON);
    return waiting.sort((a, b) => charts.get(keyOf(a)).total - charts.get(keyOf(b)).total).slice(0, 1);
  };
  put(root, legend, controls, grid);
  return {
    async update(why) {
      const { state, runs } = page;
      if (!runs.length) {
        for (const node of [legend, controls]) renew(node, "", () => []);
        return put(grid, el("p", { class: "soft", text: "Choose runs on the left: their rounds appear here." }));
      }
      const all = await Promise.all(runs.map(async (run) => ({ run, lines: await run.lines(page.view.split) })));
      const total = all.reduce((sum, { lines }) => sum + lines.total, 0);
      const isOnlyData = why.size === 1 && why.has("data");
      clearTimeout(due);
      const axes = Object.keys(AXES).filter((name) => all.every(({ lines }) => hasAxis(lines, name)));
      const over = axes.includes(state.get("over")) ? state.get("over") : all.every(({ lines }) => hasAxis(lines, "clock")) ? "clock" : "round";
      const focus = runs.find((run) => run.id === state.get("focus")) ?? runs[0];
      const kinds = kindsOf(all, page);
      renew(legend, page.legendKey(focus.id), () => [page.legend((run) => state.set({ focus: state.get("focus") === run.id ? null : run.id }), (run) => run.id === focus.id), KEY.cloneNode(true)]);
      renew(controls, [axes, over, kinds.map((kind) => kind.name), state.get("charts"), state.get("smooth")].join(), () => controlsOf(page, axes, over, kinds));
      const picked = shownOf(kinds, state, runs.length);
      const about = await focus.about();
      courses = new Map(all.map(({ run, lines }) => [run.id, courseOf(courses.get(run.id), over, page.view.seed).follow(lines, AXES[over])]));
      for (const kind of isOnlyData ? inTurn(picked, total) : picked) {
        if (!charts.has(keyOf(kind))) charts.set(keyOf(kind), chartOf(kind, page));
        const parts = Object.assign(charts.get(keyOf(kind)), { total });
        drawn(parts, kind, { all, courses, over, focus, about, page, later: isOnlyData });
      }
      for (const name of charts.keys()) {
        if (picked.some((kind) => keyOf(kind) === name)) continue;
        charts.get(name).lines.destroy();
        charts.delete(name);
      }
      const nodes = picked.map((kind) => charts.get(keyOf(kind)).shown.root);
      if (nodes.length !== grid.children.length || nodes.some((node, i) => grid.children[i] !== node)) put(grid, nodes);
      root.dataset.over = over;
      root.dataset.lines = total;
    },
    unmount() {
      clearTimeout(due);
      for (const { lines } of charts.values()) lines.destroy();
    },
  };
}

function courseOf(before, over, seed) {
  return before?.over === over && before.seed === seed ? before : new Course(over, seed);
}

function keyOf({ name, title }) {
  return `${name} ${title}`;
}

function hasAxis(lines, name) {
  const { sum } = AXES[name];
  return (sum ?? [name]).every((one) => lines.hasPositive(one) || (name === "round" && lines.total > 0));
}

/** The charts that these runs can have. */
function kindsOf(all, page) {
  const { entry, names } = all[0].run;
  const { split } = page.view;
  const found = [];
  const any = (name) => all.some(({ lines }) => lines.column(name)?.some(Number.isFinite));
  if (names.length > 1) found.push({ name: "hypervolume", title: "Hypervolume", curves: [["hypervolume", "sent"], ["trained_hypervolume", "trained"]], better: "higher" });
  names.forEach((name, j) => {
    const better = entry.objectives[j].maximise ? "higher" : "lower";
    found.push({ name: `mean.${j}`, title: `Mean ${name}`, curves: [[`sent.${split}.${j}`, "sent"], [`trained.${split}.${j}`, "trained"]], better });
  });
  names.forEach((name, j) => {
    const better = entry.objectives[j].maximise ? "higher" : "lower";
    if (entry.clients > 1) found.push({ name: `worst.${j}`, title: `Worst client's ${name}`, curves: [[`sent.worst.${j}`, "sent"], [`sent.nine.${j}`, "thin"]], better, words: { thin: "what nine of ten have at least", sent: "the worst client" } });
  });
  for (const [name, title] of Object.entries(COUNTED)) if (all.some(({ lines }) => lines.hasPositive(name))) found.push({ name, title: title[0].toUpperCase() + title.slice(1), curves: [[name, "sent"]], plain: true });
  const own = new Set(all.flatMap(({ lines }) => [...lines.columns.keys()].filter((name) => !HIDDEN.has(name) && !OF_GOALS.test(name))));
  for (const name of own) if (any(name)) found.push({ name, title: name, curves: [[name, "sent"]], plain: true });
  return found;
}

function shownOf(kinds, state, runs) {
  const asked = state.get("charts")?.split(",");
  const names = kinds.map((kind) => kind.name);
  const first = names.filter((name) => name === "hypervolume" || name.startsWith("mean.") || name.startsWith("worst.")).slice(0, runs > 8 ? 3 : 6);
  return kinds.filter((kind) => (asked ?? first).includes(kind.name));
}

function controlsOf(page, axes, over, kinds) {
  const { state } = page;
  const shown = new Set(shownOf(kinds, state, page.runs.length).map((kind) => kind.name));
  const toggle = (name) => {
    if (!shown.delete(name)) shown.add(name);
    state.set({ charts: kinds.map((kind) => kind.name).filter((one) => shown.has(one)).join(",") || null });
  };
  const others = kinds.filter((kind) => !shown.has(kind.name)).map((kind) => [kind.name, kind.title]);
  return [
    choice("over", axes.map((name) => [name, AXES[name].title]), over, (value) => state.set({ over: value })),
    choice("smoothed over", [["0", "nothing"], ["2", "5 rounds"], ["5", "11 rounds"], ["15", "31 rounds"]], state.get("smooth") ?? "0", (value) => state.set({ smooth: value === "0" ? null : value })),
    others.length > 0 && choice("also show", [["", "…"], ...others], "", (value) => value && toggle(value)),
    shown.size > 1 && choice("hide", [["", "…"], ...kinds.filter((kind) => shown.has(kind.name)).map((kind) => [kind.name, kind.title])], "", (value) => value && toggle(value)),
  ];
}

function chartOf(kind, page) {
  const hover = tip();
  const parts = {};
  parts.lines = new Lines({
    label: `${kind.title}. Arrow keys walk along a line, page keys change the line, Enter sets the round.`,
    height: 210,
    on: { hover: (text, at) => hover.show(text, at), read: page.say, place: (x) => parts.place?.(x) },
  });
  parts.shown = figure({ title: kind.title, name: `rounds-${kind.name.replace(/[^a-z0-9]+/gi, "-")}`, vector: () => parts.lines.vector(), paper: kind.name === "hypervolume" ? page.paper("hypervolume") : null });
  parts.shown.plot.append(parts.lines.root, hover.root);
  return parts;
}

function drawn(parts, kind, { all, courses, over, focus, about, page, later }) {
  const { state, view } = page;
  const reach = Number(state.get("smooth") ?? 0);
  const axis = AXES[over];
  const series = [];
  for (const { run } of all) {
    const style = page.styles.get(run.id);
    for (const [name, evaluation] of kind.curves) {
      // What clients have after the steps of a round belongs to the end of that round.
      const course = courses.get(run.id);
      const found = course.curve(name, evaluation === "trained");
      if (!found || !found.ys.some(Number.isFinite)) continue;
      const words = kind.plain ? "" : ` (${kind.words?.[evaluation] ?? evaluation})`;
      const lasting = reach ? null : `${course.era} ${name}`;
      const base = { id: run.id, label: run.entry.label, colour: style.colour, xs: found.xs, stepped: over !== "round", lasting, version: `${run.version}.${over}.${reach}.${view.seed}.${style.colour}.${name}` };
      const dash = evaluation === "trained" ? "2 3" : evaluation === "thin" ? "6 3" : "";
      const told = (ys) => (i) => `${run.entry.label}${words}\n${kind.title}: ${number(ys[i])}\n${axis.title}: ${(axis.words ?? number)(found.xs[i])}`;
      const ys = smooth(found.ys, reach);
      if (reach) series.push({ ...base, ys: found.ys, kind: `raw ${evaluation}`, dash, words: told(found.ys) });
      const band = run === focus && found.low && evaluation === "sent" && !reach ? { low: found.low, high: found.high } : null;
      series.push({ ...base, ys, kind: evaluation, dash, band, words: told(ys) });
    }
  }
  const [first] = courses.get(focus.id).places;
  parts.place = (x) => state.set({ round: nearestRound(first, x) });
  const at = view.round === "latest" ? null : placeOfRound(first, Number(view.round));
  // All of the way, so that lines grow into the picture and nothing that is drawn moves.
  const whole = over === "round" ? [[0, ...all.map(({ run }) => (run.finished ? 0 : run.entry.rounds))]] : [];
  const x = extent([...series.map((one) => one.xs), ...whole]);
  // What nobody has trained yet would take most of the height.
  const trained = (values) => (values.length > 3 ? values.subarray(1) : values);
  const y = extent(series.flatMap((one) => (one.band ? [one.ys, one.band.low, one.band.high] : [one.ys]).map(trained)));
  parts.lines.draw({ x: { title: axis.title, domain: x, whole: axis.whole }, y: { title: kind.title, domain: y }, series, at, marks: marksOf(all, focus, first, about) });
  parts.shown.caption(captionOf(kind, series, axis, page) + marked(focus, about), later);
  parts.shown.setTable([axis.title, ...series.map((one) => `${one.label}${kind.plain ? "" : ` (${one.kind})`}`)], () => rowsOf(series));
}

/** Of the run in focus: rounds in which replies were missing, and the one from which on it was attacked. */
function marksOf(all, focus, first, about) {
  const { lines } = all.find(({ run }) => run === focus);
  const failures = lines.column("failures");
  if (!failures || !first) return [];
  const found = [];
  for (let k = 0; k < first.order.length && found.length < MOST_MARKS; k++) if (failures[first.order[k]] > 0) found.push({ x: first.xs[k] });
  const attack = about.attack ? placeOfRound(first, about.attack_from) : null;
  return attack === null ? found : [...found, { x: attack, kind: "attack" }];
}

function marked({ entry }, about) {
  const missing = entry.failures ? ` Short ticks at the top: rounds of ${entry.label} with missing replies.` : "";
  return missing + (about.attack ? ` Long tick: the attack on ${entry.label} begins (${about.attack}).` : "");
}

function nearestRound(place, x) {
  if (!place) return null;
  let best = 0;
  place.xs.forEach((one, k) => {
    if (Math.abs(one - x) < Math.abs(place.xs[best] - x)) best = k;
  });
  return best === place.xs.length - 1 ? null : place.rounds[best];
}

function placeOfRound(place, round) {
  const k = place?.rounds.findIndex((one) => one >= round) ?? -1;
  return k < 0 ? null : place.xs[k];
}

function captionOf(kind, series, axis, page) {
  const ends = series.filter((one) => !one.kind.startsWith("raw")).map((one) => {
    const last = one.ys.findLast?.(Number.isFinite) ?? one.ys[one.ys.length - 1];
    return `${one.label}${kind.plain ? "" : ` ${kind.words?.[one.kind] ?? one.kind}`} ${number(last)}`;
  });
  const better = kind.better ? `, ${kind.better} is better` : "";
  const split = kind.name.startsWith("mean") ? `, split ${page.view.split}` : "";
  const seeds = page.view.seed === "all" && page.runs[0].entry.started.length > 1 ? "; means over seeds, the band of the run in focus is one deviation" : "";
  const first = series.some((one) => one.ys.length > 3) ? " The scale is that of trained models: the first one may lie outside." : "";
  return `Over ${axis.title}${better}${split}${seeds}. ${page.runs.every((run) => run.finished) ? "At the end" : "So far"}: ${listed(ends.slice(0, 8))}${ends.length > 8 ? ` and ${counted(ends.length - 8, "more line")}` : ""}.${first}`;
}

function rowsOf(series) {
  const xs = [...new Set(series.flatMap((one) => Array.from(one.xs)))].sort((a, b) => a - b);
  if (xs.length > 5000) return [];
  const maps = series.map((one) => new Map(Array.from(one.xs, (x, i) => [x, one.ys[i]])));
  return xs.map((x) => [x, ...maps.map((map) => map.get(x) ?? NaN)]);
}
