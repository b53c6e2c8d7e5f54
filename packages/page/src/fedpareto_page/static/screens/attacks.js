// Attacks: algorithms under attacks, a table for each defence, as they are run; and what a defence did to whom in a run.

import { choice, command, el, put, renew } from "../dom.js";
import { figure } from "../charts/figure.js";
import { gridFigure } from "../charts/grid.js";
import { table } from "../charts/table.js";
import { extent, mean } from "../maths.js";
import { inkOn, viridis } from "../palette.js";
import { json } from "../source.js";
import { counted, decimalsOf, listed, number, signed } from "../words.js";

export const styles = ["attacks"];
export const bar = [];
const SIGNS = { unfit: "–", failed: "×", waiting: "…" };
const WORDS = { unfit: "does not fit", failed: "failed", waiting: "waiting" };
const MANY = { unfit: "that do not fit", failed: "that failed", waiting: "that wait" };

export function mount(root, page) {
  const { state } = page;
  const [head, panels, cell, own] = ["div", "div", "section", "section"].map((tag) => el(tag));
  put(root, head, panels, cell, own);
  const figures = [];
  const grid = gridFigure(page, "Whom a defence left out");
  return {
    async update() {
      const found = page.shelf.others.filter((one) => one.kind === "matrix");
      const chosen = found.find((one) => one.id === state.get("matrix")) ?? found[0];
      renew(head, JSON.stringify([found, chosen?.id, state.get("measure")]), () => (chosen ? [] : nothing(page)));
      if (chosen) await draw(chosen, found);
      else put(panels);
      await ownGrid();
    },
    unmount: () => grid.destroy(),
  };

  async function draw(chosen, found) {
    if (chosen.error) return put(head, el("p", { class: "callout bad", text: `${chosen.name}: ${chosen.error}` }));
    const matrix = await json(`/api/matrix/${chosen.id}`);
    const measure = matrix.measures[state.get("measure")] ? state.get("measure") : "mean";
    const count = (name) => matrix.cells.filter((one) => one.state === name).length;
    renew(head, JSON.stringify([found.map((one) => one.id), matrix.id, measure, matrix.busy, count("done"), count("waiting"), count("failed")]), () => el("div", { class: "row" },
      found.length > 1 && choice("matrix", found.map((one) => [one.id, one.name]), matrix.id, (value) => state.set({ matrix: value, cell: null })),
      choice("show", Object.entries(matrix.measures), measure, (value) => state.set({ measure: value === "mean" ? null : value })),
      el("span", { class: `pill ${matrix.busy ? "running" : ""}`, text: `${count("done") + count("failed")} of ${matrix.cells.length - count("unfit")} cells run${matrix.busy ? ", going on" : ""}` })));
    const scale = scaleOf(matrix, measure);
    while (figures.length < matrix.defences.length) figures.push(figure({ title: "", name: "matrix", isTable: true }));
    matrix.defences.forEach((_, d) => panel(figures[d], matrix, measure, d, scale));
    if (panels.childElementCount !== matrix.defences.length) put(panels, figures.slice(0, matrix.defences.length).map((one) => one.root));
    const [a, k, d] = (state.get("cell") ?? "").split(".").map(Number);
    const picked = matrix.cells.find((one) => one.algorithm === a && one.attack === k && one.defence === d);
    renew(cell, JSON.stringify([picked, measure]), () => picked && detail(picked, matrix, measure));
    Object.assign(root.dataset, { matrix: matrix.id, measure, cells: matrix.cells.length, waiting: count("waiting") });
    return null;
  }

  function panel(shown, matrix, measure, d, { share, decimals }) {
    const { algorithms, attacks, defences, objective } = matrix;
    const cells = matrix.cells.filter((one) => one.defence === d);
    shown.title(`Defence: ${defences[d]}`);
    const node = (one) => {
      const value = one.value?.[measure] ?? null;
      const isKnown = value !== null;
      const words = `${algorithms[one.algorithm]} under ${attacks[one.attack]}: ${isKnown ? `${text(value, measure, decimals)} ± ${number(one.deviation[measure], decimals)}` : `${WORDS[one.state] ?? "not known"}, ${one.reason ?? "without an attack there is nothing to lose"}`}`;
      const place = `${one.algorithm}.${one.attack}.${d}`;
      const pick = () => state.set({ cell: state.get("cell") === place ? null : place });
      const style = isKnown ? { "--own": viridis(share(value)), "--on": inkOn(share(value)) } : {};
      return el("td", { class: `cell ${isKnown ? "done" : one.state}`, style, data: { state: one.state, at: place, ...(isKnown && { value }), ...(one.reason && { reason: one.reason }) } },
        el("button", { type: "button", title: words, text: isKnown ? text(value, measure, decimals) : (SIGNS[one.state] ?? "–"), on: { click: pick }, aria: { label: words, pressed: String(state.get("cell") === place) } }));
    };
    const version = JSON.stringify([cells, measure, state.get("cell"), share(0), share(1)]);
    renew(shown.plot, version, () => el("div", { class: "scroll", tabindex: "0", role: "region", aria: { label: `Defence ${defences[d]}` } },
      el("table", { class: "heat" }, el("caption", { class: "hidden", text: `${objective.name} behind the defence ${defences[d]}` }),
        el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "algorithm" }), attacks.map((name) => el("th", { scope: "col", text: name })))),
        el("tbody", {}, algorithms.map((name, a) => el("tr", {}, el("th", { scope: "row", text: name }), cells.filter((one) => one.algorithm === a).map(node)))))));
    shown.caption(caption(cells, matrix, measure, decimals));
    shown.setTable(["algorithm", "attack", "defence", "state", ...Object.values(matrix.measures), "reason"], () =>
      cells.map((one) => [algorithms[one.algorithm], attacks[one.attack], defences[d], one.state, ...Object.keys(matrix.measures).map((name) => one.value?.[name] ?? NaN), one.reason ?? ""]));
  }

  async function ownGrid() {
    const touched = page.runs.filter(({ entry }) => (entry.attack || entry.defence) && entry.has.grid && entry.started.length);
    const run = touched.find((one) => one.id === state.get("focus")) ?? touched[0];
    renew(own, `${touched.map((one) => one.id)}${run?.id}`, () => (run
      ? [touched.length > 1 && choice("run", touched.map((one) => [one.id, one.entry.label]), run.id, (value) => state.set({ focus: value })),
        el("p", { class: "soft", text: [run.entry.attack && `Attack: ${run.entry.attack}.`, run.entry.defence && `Defence: ${run.entry.defence}.`].filter(Boolean).join(" ") }), grid.root]
      : page.runs.length ? el("p", { class: "soft", text: "None of the chosen runs was attacked or defended; one that was shows here whom its defence left out." }) : []));
    if (run) await grid.update(run);
  }
}

function nothing(page) {
  return el("div", { class: "callout" },
    el("p", { text: "No matrix here yet. One file lists algorithms, attacks and defences; every combination is run, and appears here as it is done:" }),
    command("fedpareto matrix examples/matrix.yaml --out runs/matrix", page.say));
}

/** Yellow is good: of losses, none. */
function scaleOf(matrix, measure) {
  const values = matrix.cells.map((one) => one.value?.[measure]).filter(Number.isFinite);
  const [low, high] = extent([values]);
  const isGood = measure === "loss" ? false : matrix.objective.maximise;
  const place = (value) => (high > low ? (value - low) / (high - low) : 1);
  const spread = mean(matrix.cells.map((one) => one.deviation?.[measure]).filter((one) => one > 0));
  return { share: (value) => (isGood ? place(value) : 1 - place(value)), decimals: Math.max(2, decimalsOf(spread, values[0] ?? 1)) };
}

function text(value, measure, decimals) {
  return measure === "loss" ? signed(value, decimals) : number(value, decimals);
}

function caption(cells, { algorithms, attacks, objective, measures, judged, seeds }, measure, decimals) {
  const known = cells.filter((one) => Number.isFinite(one.value?.[measure]));
  const sign = (measure === "loss") === objective.maximise ? -1 : 1;
  const end = (by) => known.reduce((a, b) => (by * sign * b.value[measure] > by * sign * a.value[measure] ? b : a), known[0]);
  const told = (one) => `${text(one.value[measure], measure, decimals)} (${algorithms[one.algorithm]}, ${attacks[one.attack]})`;
  const ends = known.length ? `, from ${told(end(-1))} to ${told(end(1))}` : "";
  const others = Object.entries(MANY).map(([name, words]) => [cells.filter((one) => one.state === name).length, words]).filter(([count]) => count);
  const why = known.length || !cells[0]?.reason ? "" : ` (such as: ${cells[0].reason})`;
  const rest = others.length ? ` Without a value: ${listed(others.map(([count, words]) => `${count} ${words}`))}${why}.` : "";
  return `${objective.name}, ${measures[measure]}${ends}; ${measure === "loss" ? "above 0 is what an attack costs" : `${objective.maximise ? "higher" : "lower"} is better`}. Mean over ${counted(seeds.length, "seed")}, of the ${counted(judged[0]?.length ?? 0, "client")} that attack in no cell.${rest}`;
}

/** A cell's clients, or why it has none. */
function detail(one, matrix, measure) {
  const name = `${matrix.algorithms[one.algorithm]} under ${matrix.attacks[one.attack]}, defence ${matrix.defences[one.defence]}`;
  if (!one.clients) return [el("h2", { text: name }), el("p", { text: `${WORDS[one.state]}: ${one.reason}` })];
  const count = Math.max(...one.clients.map((values) => values.length));
  const rows = Array.from({ length: count }, (_, client) => [
    client, ...one.clients.map((values) => values[client] ?? NaN),
    matrix.judged.every((clients) => clients.includes(client)) ? "yes" : matrix.judged.some((clients) => clients.includes(client)) ? "under some seeds" : "no, it attacks in some cell",
  ]);
  return [el("h2", { text: name }), one.reason && el("p", { class: "bad", text: one.reason }),
    table({ caption: `Clients of ${name}`, columns: ["client", ...matrix.seeds.map((seed) => ({ title: `${matrix.objective.name}, seed ${seed}`, better: matrix.objective.maximise ? 1 : -1 })), "counted"], rows })];
}
