// Film: similarities, clusters and the front of one run, round by round, scrubbed together.

import { button, choice, command, el, put, renew, svg } from "../dom.js";
import { figure } from "../charts/figure.js";
import { Heat, known, UNKNOWN } from "../charts/heat.js";
import { preferenceKey, Threads } from "../charts/picture.js";
import { linear, roomy, ticks } from "../charts/scale.js";
import { Scatter } from "../charts/scatter.js";
import { tip } from "../charts/tip.js";
import { nondominated } from "../dominance.js";
import { extent, mean } from "../maths.js";
import { ofPreference } from "../palette.js";
import { points } from "../points.js";
import { counted, EVALUATIONS, listed, number } from "../words.js";

export const styles = ["film"];
export const bar = ["eval", "split", "seed", "round"];
/** Between clusters, in threads. */
const GAP = 2.5;
const STEPS = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, Home: -1e9, End: 1e9 };

export function mount(root, page) {
  const { state } = page;
  const [legend, controls, body] = [el("div"), el("div", { class: "row" }), el("div")];
  put(root, legend, controls, body);
  let view = null;
  let kept = {};
  const close = (...nodes) => {
    view?.destroy();
    view = null;
    delete root.dataset.clusters;
    renew(controls, "none", () => []);
    put(body, nodes);
  };
  const closed = (text) => close(el("p", { class: "soft", text }));
  /** A film is read whole: while a run goes on, the longer that takes, the more seldom. */
  const filmOf = async (run, seed) => {
    const began = performance.now();
    const isSame = kept.run === run && kept.seed === seed;
    if (isSame && run.entry.status.name === "running" && began < kept.next) return kept;
    const source = await run.film(seed);
    const next = 6 * performance.now() - 5 * began;
    if (!isSame || kept.source !== source) kept = { ...readable(source, run), run, seed, source, next };
    return kept;
  };
  const onKey = (event) => {
    const { key } = event;
    // What has keys of its own keeps them.
    const others = key === " " ? "button, summary, input:not([type=range])" : "input";
    const isTaken = event.defaultPrevented || event.target.closest?.(`select, textarea, .scroll, ${others}`);
    if (!view || isTaken || event.metaKey || event.ctrlKey || event.altKey) return;
    if (key === " ") page.play.toggle();
    else if (key in STEPS) page.play.step(STEPS[key]);
    else return;
    event.preventDefault();
  };
  addEventListener("keydown", onKey);
  return {
    async update() {
      const run = page.runs.find((one) => one.id === state.get("focus")) ?? page.runs.find(isFilmed) ?? page.runs[0];
      if (!run) return closed("Choose runs on the left: the film of one of them appears here.");
      const focus = (one) => state.set({ focus: one.id });
      renew(legend, page.legendKey(run.id), () => page.legend(focus, (one) => one === run));
      if (!isFilmed(run)) return close(unfilmed(run, page));
      const seed = state.number("seed", run.entry.started[0]);
      if (!run.entry.started.includes(seed)) return closed(`${run.entry.label} has no round of seed ${seed} yet.`);
      const film = await filmOf(run, seed);
      if (!film.rounds.length) return closed("No round yet: the film begins with the first.");
      const kind = [run.id, Boolean(film.clusters), Boolean(film.similarity), Boolean(film.preferences)].join();
      if (view?.kind !== kind) {
        close();
        view = stage(body, page, film);
        view.kind = kind;
      }
      const { started } = run.entry;
      const which = page.view.seed === "all" && started.length > 1 ? `A film is of one seed: of ${started.length} this is seed ${seed}.` : "";
      renew(controls, which, () => [...speed(state), el("span", { class: "soft", text: which })]);
      Object.assign(root.dataset, await view.draw(film));
    },
    unmount() {
      removeEventListener("keydown", onKey);
      view?.destroy();
      page.known = null;
    },
  };
}

function isFilmed({ entry }) {
  return entry.has.clusters || entry.has.similarity;
}

function unfilmed(run, page) {
  const others = page.runs.filter(isFilmed).map((one) => button(one.entry.label, () => page.state.set({ focus: one.id })));
  const why = `${run.entry.label} does not group clients and keeps no similarities, so there is nothing to film.`;
  const how = command("fedpareto run fedpref --clients 10 --rounds 20", page.say);
  return el("div", { class: "callout" }, el("p", { text: why }), others.length
    ? el("p", { class: "row" }, "These have a film:", others)
    : [el("p", { text: "FedPref, CFL, IFCA and others that group clients have one:" }), how]);
}

function speed(state) {
  const set = (value) => state.set({ speed: value === "4" ? null : value });
  return [
    choice("rounds a second", ["1", "2", "4", "8", "12", "20"], state.get("speed") ?? "4", set),
    el("span", { class: "soft", text: "Space plays and stops, arrows step, Home and End go to the ends." }),
  ];
}

// -- what the server sent ---------------------------------------------------------------------------------------------

function readable({ head, columns }, { entry }) {
  const film = placeIn(head, columns, entry);
  const heights = film.clusters && heightsOf(film);
  // As the threads end, so that a cluster of the last round is one frame.
  const ends = heights?.steps[heights.steps.length - 1].heights;
  return { ...film, heights, rows: ends ? [...film.order].sort((a, b) => ends[a] - ends[b]) : film.order };
}

function placeIn(head, columns, entry) {
  const places = new Map(head.clients.map((client, i) => [client, i]));
  return {
    ...head, all: entry.clients, similarity: columns.get("similarity")?.data,
    order: head.order.filter((client) => places.has(client)).map((client) => places.get(client)),
    colours: head.clients.map((_, i) => ofPreference(head.preferences?.[i])), cuts: head.clusters ? cutsOf(head) : [],
  };
}

/** After which rounds clients that were together are not any more, or the other way round. */
function cutsOf({ rounds, clusters }) {
  const parts = (from, to) => {
    const seen = new Map();
    return from.some((label, i) => (seen.has(label) ? seen.get(label) !== to[i] : !seen.set(label, to[i])));
  };
  return rounds.map((round, k) => {
    const [cut, joined] = k ? [parts(clusters[k - 1], clusters[k]), parts(clusters[k], clusters[k - 1])] : [];
    return { k, round, how: cut && joined ? "regrouped" : cut ? "cut" : joined ? "joined" : null };
  }).filter((one) => one.how);
}

/** The place of the last of these rounds that is not after the one that is shown. */
function placeOf(rounds, round) {
  return round === "latest" ? rounds.length - 1 : Math.max(0, rounds.findLastIndex((one) => one <= Number(round)));
}

/** Clusters of a round as lists of clients. */
function groupsOf({ clients, clusters }, k) {
  const found = new Map();
  clients.forEach((client, i) => found.set(clusters[k][i], [...(found.get(clusters[k][i]) ?? []), client]));
  return [...found.values()].map((group) => group.sort((a, b) => a - b)).sort((a, b) => a[0] - b[0]);
}

// -- the three pictures -----------------------------------------------------------------------------------------------

function stage(body, page, { clusters, similarity, preferences, run, seed: first }) {
  let seed = first;
  const key = (client) => `${run.id}:${seed}:${client}`;
  const isChosen = (client) => page.selection.has(key(client));
  const pick = (client) => page.selection.toggle(key(client));
  const pictured = (title, name, chart) => {
    const shown = figure({ title, name, vector: () => chart.vector() });
    shown.plot.append(chart.root);
    return { shown, chart };
  };
  const river = clusters && pictured("Clusters", "clusters", new Threads({
    label: "Clusters over rounds. Up and down walk through clients, Enter selects, left and right change the round.",
    on: { pick: ({ client }) => pick(client), read: page.say, click: (x, found) => page.play.to(Math.round(found.x.invert(x))) },
  }));
  const heat = similarity && pictured("Similarity", "similarity", new Heat({
    label: "Similarity of clients. Arrow keys move from cell to cell, Enter selects the row's client.", on: { pick, read: page.say },
  }));
  const hover = tip();
  const front = pictured("Front of this round", "film-front", new Scatter({
    label: "Front of this round. Arrow keys walk along it, Enter selects.", height: 400,
    on: { pick: (group, i) => page.selection.toggle(group.key(i)), hover: hover.show, read: page.say },
  }));
  front.shown.plot.append(hover.root);
  const why = run.entry.private ? "Preferences stay with the nodes" : "Preferences are not known yet";
  const unknown = `${why}, so clients stand in the order of their numbers.`;
  const colours = preferences ? preferenceKey(run.names) : el("p", { class: "soft", text: unknown });
  put(body, colours, river?.shown.root, el("div", { class: "columns" }, heat?.shown.root, front.shown.root));
  return {
    destroy: () => [river, heat, front].forEach((one) => one?.chart.destroy()),
    async draw(film) {
      ({ seed } = film);
      const { round } = page.view;
      const k = placeOf(film.rounds, round);
      const groups = clusters ? groupsOf(film, k) : [];
      if (river) drawRiver(river, film, k, groups, isChosen);
      if (heat) drawHeat(heat, film, round, clusters && film.clusters[k], isChosen);
      await drawFront(front, film, groups, page);
      const written = groups.map((group) => group.join(".")).join("|");
      return { clusters: written, round: film.rounds[k], seed, order: film.rows.map((i) => film.clients[i]).join() };
    },
  };
}

/** At each change of clusters the height of each client in units: clusters apart, clients of one side by side. */
function heightsOf({ clusters, cuts, order }) {
  const rank = Object.assign([], Object.fromEntries(order.map((i, place) => [i, place])));
  const changes = [0, ...cuts.map((cut) => cut.k)];
  const centres = changes.map((k) => clusters[k].map((label) => mean(rank.filter((_, i) => clusters[k][i] === label))));
  // Whoever is parted early stays apart: so threads of clusters that are only ever cut never cross.
  const leaves = [...order].sort((a, b) => {
    const parted = centres.find((of) => of[a] !== of[b]);
    return parted ? parted[a] - parted[b] : rank[a] - rank[b];
  });
  return {
    leaves,
    steps: changes.map((k) => {
      const labels = clusters[k];
      const first = labels.map((label) => leaves.findIndex((i) => labels[i] === label));
      const heights = [];
      let at = 0;
      [...leaves].sort((a, b) => first[a] - first[b]).forEach((i, place, all) => {
        if (place && labels[i] !== labels[all[place - 1]]) at += GAP;
        heights[i] = at++;
      });
      return { k, heights, total: at };
    }),
  };
}

function riverOf(film) {
  const { rounds, clients, preferences } = film;
  const { leaves, steps } = film.heights;
  const total = Math.max(...steps.map((one) => one.total));
  return (width) => {
    const unit = Math.max(2, Math.min(13, 330 / total));
    const [top, foot] = [22, total * unit + 32];
    // A run that goes on grows into the room that its rounds will need, so that nothing moves that was drawn.
    const { rounds: planned, status } = film.run.entry;
    const latest = rounds[rounds.length - 1];
    const x = linear([rounds[0], status.name === "running" ? Math.max(planned, latest) : latest], [14, width - 34]);
    const y = (step, i) => (top + (step.heights[i] + (total - step.total) / 2 + 0.5) * unit).toFixed(1);
    const threads = leaves.map((i) => {
      const bends = steps.slice(1).map((step, s) => {
        const [from, to] = [rounds[step.k - 1], rounds[step.k]].map(x);
        const middle = ((from + to) / 2).toFixed(1);
        return `H${from.toFixed(1)}C${middle} ${y(steps[s], i)} ${middle} ${y(step, i)} ${to.toFixed(1)} ${y(step, i)}`;
      });
      const end = Number(y(steps[steps.length - 1], i));
      const wanted = preferences ? `\nwanted ${preferences[i].map((w) => number(w, 2)).join(" : ")}` : "";
      return {
        client: clients[i], colour: film.colours[i], thick: Math.min(2.6, unit * 0.6), end, at: [Math.max(0, x(latest) - 150), end],
        d: `M${x.range[0]} ${y(steps[0], i)}${bends.join("")}H${x(latest)}`, words: `client ${clients[i]}${wanted}`,
      };
    });
    const middle = { "text-anchor": "middle" };
    const whole = ticks(x.domain, Math.max(2, width / 90)).filter(Number.isInteger);
    const cut = (at) => svg("path", { class: "cut", d: `M${at} ${top - 6}V${foot}M${at - 4} ${top - 14}h8l-4 7Z` });
    const frame = [
      film.cuts.slice(0, 200).map(({ round }) => cut(x(round))),
      whole.map((text) => svg("text", { ...middle, x: x(text), y: foot + 14, text })),
      svg("text", { ...middle, class: "axis", x: width / 2, y: foot + 28, text: "rounds" }),
      unit > 9 ? threads.map((one) => svg("text", { x: x(latest) + 6, y: one.end + 4, text: one.client })) : [],
    ];
    return { height: foot + 32, frame, threads, x, foot };
  };
}

function drawRiver({ shown, chart }, film, k, groups, isChosen) {
  film.river ??= riverOf(film);
  const here = ({ x, foot }) => svg("path", { class: "scrub", d: `M${x(film.rounds[k])} 8V${foot}` });
  chart.draw(film.river, film.river, ({ client }) => isChosen(client), here);
  const later = film.cuts.filter((one) => one.k > k).map((one) => one.round);
  const events = ["cut", "joined", "regrouped"].map((how) => {
    const rounds = film.cuts.filter((one) => one.how === how && one.k <= k).map((one) => one.round);
    const told = rounds.length > 12 ? [...rounds.slice(0, 12), `${rounds.length - 12} more`] : rounds;
    return rounds.length && `${how} after round${rounds.length > 1 ? "s" : ""} ${listed(told)}`;
  }).filter(Boolean);
  const count = film.clients.length;
  shown.caption([
    `${film.run.entry.label}, seed ${film.seed}: ${counted(groups.length, "cluster")} of ${counted(count, "client")} after round ${film.rounds[k]}.`,
    events.length ? `Clusters were ${listed(events)}.` : `No cluster was cut in ${counted(film.rounds[k], "round")}.`,
    later.length ? `They change later, ${later.length > 1 ? "first " : ""}after round ${later[0]}.` : "",
    "Each thread is a client, each bundle a cluster.",
    film.sampled ? `These are ${count} of ${number(film.all)} clients, the same in every round.` : "",
  ].join(" ").trim());
  shown.root.dataset.cuts = film.cuts.map((one) => one.round).join();
  shown.setTable(["round", "clusters", "clients in each"], () => film.rounds.map((round, at) => {
    const each = groupsOf(film, at);
    return [round, each.length, each.map((group) => group.join(" ")).join(" | ")];
  }));
}

function drawHeat({ shown, chart }, film, round, labels, isChosen) {
  const { rows: order, clients, similarity, similarity_rounds: rounds = film.rounds } = film;
  const s = clients.length;
  const place = placeOf(rounds, round);
  const square = similarity.subarray(place * s * s, (place + 1) * s * s);
  // Before anybody has trained, a run holds only that each client is like itself.
  const isBlank = rounds[place] === 0 && square.every((value, i) => i % (s + 1) === 0 || value === 0);
  const isEarly = isBlank || (round !== "latest" && Number(round) < rounds[0]);
  const at = (i, j) => (isEarly ? UNKNOWN : square[order[i] * s + order[j]]);
  const isSame = (i, j) => labels && labels[order[i]] === labels[order[j]];
  const ids = order.map((i) => clients[i]);
  chart.draw({ ids, at, colours: order.map((i) => film.colours[i]), isSame, isChosen });
  const pair = (i, j) => ({ value: known(at(i, j)), together: Boolean(isSame(i, j)), i, j });
  const pairs = ids.flatMap((_, i) => ids.slice(0, i).map((_, j) => pair(i, j))).filter((one) => Number.isFinite(one.value));
  const most = (sign) => pairs.reduce((a, b) => (sign * b.value > sign * a.value ? b : a), pairs[0]);
  const told = ({ value, i, j }) => `${number(value, 2)} (clients ${ids[j]} and ${ids[i]})`;
  const average = (together) => number(mean(pairs.filter((one) => one.together === together).map((one) => one.value)), 2);
  const ends = pairs.length ? `, from ${told(most(-1))} to ${told(most(1))}` : "";
  const isFedPref = film.run.entry.algorithm.startsWith("fedpref");
  shown.caption([
    pairs.length
      ? `How alike clients' updates are after round ${rounds[place]}${ends}.`
      : `How alike clients' updates are is not known yet after round ${isEarly && !isBlank ? round : rounds[place]}.`,
    labels && pairs.length ? `Mean within clusters ${average(true)}, between them ${average(false)}; frames are clusters.` : "",
    `Rows keep their order: ${film.clusters ? "by cluster at the end, " : ""}by preference, then by number.`,
    isFedPref ? "FedPref looks from each cluster's mean, so two who are alone in a cluster are opposites." : "",
  ].filter(Boolean).join(" "));
  shown.setTable(["client", ...ids.map(String)], () => ids.map((id, i) => [id, ...ids.map((_, j) => known(at(i, j)))]));
}

async function drawFront({ shown, chart }, film, clusters, page) {
  const { run, seed } = film;
  const { evaluation, split, round } = page.view;
  const one = await points(run, { evaluation, split, round, seed });
  const { names, maximise } = run;
  const front = nondominated(one.columns, maximise);
  film.shades ??= new Map(Array.from(one.client, (client, i) => [client, ofPreference(one.preference(i))]));
  const cluster = new Map(clusters.flatMap((group, at) => group.map((client) => [client, at + 1])));
  const told = (i) => [one.client[i], ...one.columns.map((column) => column[i])];
  const isPair = names.length > 1;
  const [xs, ys] = isPair ? one.columns : [one.client, one.columns[0]];
  page.known = (key) => {
    const i = one.client.findIndex((_, each) => one.key(each) === key);
    return i < 0 ? null : told(i).slice(1);
  };
  const group = {
    id: run.id, label: run.entry.label, style: { colour: "var(--grey)", shape: 0 }, xs, ys, front, key: one.key,
    each: (i) => ({ colour: film.shades.get(one.client[i]) ?? "var(--grey)", shape: ((cluster.get(one.client[i]) ?? 1) - 1) % 8 }),
    chosen: page.selection.size() ? Array.from(one.client, (_, i) => Number(page.selection.has(one.key(i)))) : null,
    words: (i) => told(i).map((value, j) => `${["client", ...names][j]} ${number(value)}`).join("\n"),
  };
  // One frame for the whole film: what moves is the clients.
  const values = await run.values(evaluation, split);
  const ends = (j) => roomy(extent([values.all(j, (one) => one === seed)]));
  const [x, y] = isPair ? [ends(0), ends(1)] : [roomy(extent([xs])), ends(0)];
  const axes = names.map((title, j) => ({ title, maximise: maximise[j], reversed: !maximise[j] }));
  if (!isPair) axes.unshift({ title: "client" });
  chart.draw({ x: axes[0], y: axes[1], groups: [group], view: [x[0], y[0], x[1], y[1]] });
  const where = `${EVALUATIONS[evaluation]}, split ${split}, round ${one.round[0] ?? "–"}, seed ${seed}`;
  shown.caption([
    `${counted(one.count, "client")}, ${front.filter(Boolean).length} on the front: ${where}.`,
    "Colour is the preference, shape the cluster; the axes stay the same for the whole film.",
    names.length > 2 ? `Of ${names.length} goals the first two are drawn; filled marks are on the front of all.` : "",
  ].join(" ").trim());
  const row = (i) => [...told(i), cluster.get(one.client[i]) ?? "–", front[i] ? "yes" : "no"];
  shown.setTable(["client", ...names, "cluster", "on the front"], () => Array.from(one.client, (_, i) => row(i)));
}
