// Clients: what each one wanted and got, what it misses, and whether it would be better off alone.

import { button, command, el, put, renew, svg, tick } from "../dom.js";
import { figure } from "../charts/figure.js";
import { preferenceKey, Threads } from "../charts/picture.js";
import { linear, roomy, tickTexts, ticks } from "../charts/scale.js";
import { table } from "../charts/table.js";
import { deviation, extent, mean } from "../maths.js";
import { mark, ofPreference } from "../palette.js";
import { kindOf } from "../runs.js";
import { has, json } from "../source.js";
import { bytes, counted, decimalsOf, listed, number, signed } from "../words.js";

export const styles = ["film"];
export const bar = ["seed", "round"];
/** Pairs are counted for so many clients at most. */
const MOST_PAIRED = 1500;
/** Clients of so many runs at most are summed up. */
const MOST_RUNS = 12;
const AVERAGED = ["utility", "utility_trained", "regret", "gain", "missed", "bytes_up", "bytes_down"];

export function mount(root, page) {
  const { state, selection } = page;
  const [legend, body, answer, note] = ["div", "div", "div", "p"].map((tag) => el(tag));
  const pick = ({ keys }) => {
    const found = new Set(selection.all());
    const isOn = keys.every((key) => found.has(key));
    for (const key of keys) found[isOn ? "delete" : "add"](key);
    selection.set([...found]);
  };
  const isChosen = ({ keys }) => keys.some((key) => selection.has(key));
  const [wanted, gains] = [["Wanted and got", "wanted"], ["Better off than alone?", "gain"]].map(([title, name]) => {
    const chart = new Threads({ label: `${title}. Arrow keys walk through clients, Enter selects.`, on: { pick, read: page.say } });
    const shown = figure({ title, name, vector: () => chart.vector() });
    shown.plot.append(chart.root);
    return { shown, chart };
  });
  const list = figure({ title: "Client by client", name: "clients", isTable: true });
  const sums = figure({ title: "Run by run", name: "clients-of-runs", isTable: true });
  const parts = [answer, el("div", { class: "columns" }, wanted.shown.root, gains.shown.root), note, sums.root, list.root];
  put(root, legend, body);
  return {
    async update() {
      const { runs } = page;
      const federated = runs.find((one) => one.entry.algorithm !== "local");
      const run = runs.find((one) => one.id === state.get("focus")) ?? federated ?? runs[0];
      const reason = !run ? "Choose runs on the left: their clients appear here." : run.entry.lines ? "" : "No round yet.";
      const focus = (one) => state.set({ focus: one.id });
      renew(legend, page.legendKey(run?.id), () => run && page.legend(focus, (one) => one === run));
      renew(body, reason, () => (reason ? el("p", { class: "soft", text: reason }) : parts));
      if (reason) return;
      const found = { run, page, ...rowsOf(await answersOf(run, page), run, selection) };
      const { rows } = found;
      const version = JSON.stringify([run.id, runs.length, rows]);
      page.known = (key) => rows.find(({ keys }) => keys.includes(key))?.sent ?? null;
      wanted.shown.root.hidden = run.names.length < 2 || !rows.some((row) => row.preference);
      if (!wanted.shown.root.hidden) drawWanted(wanted, found, version, isChosen);
      const known = rows.filter((row) => Number.isFinite(row.gain));
      const pays = known.length && found.alone !== run.id ? payText(known, found) : "";
      gains.shown.root.hidden = !pays;
      if (pays) drawGains(gains, known, found, pays, version, isChosen);
      await drawAnswer(answer, found, pays);
      note.textContent = noteOf(found);
      await drawRuns(sums, page);
      drawList(list, found, version, isChosen, pick);
      const { seeds, round, alone } = found;
      Object.assign(root.dataset, { run: run.id, seeds, round, alone: alone ?? "" });
    },
    unmount() {
      for (const { chart } of [wanted, gains]) chart.destroy();
      page.known = null;
    },
  };
}

/** What the server says of each seed that is shown. */
async function answersOf(run, { view: { round, seed }, runs }) {
  const seeds = run.entry.started.filter((one) => seed === "all" || Number(seed) === one);
  const chosen = runs.map(({ id }) => id).join();
  // A saved page knows the rounds and runs that it was saved with.
  const whole = new URLSearchParams(document.documentElement.dataset.view?.split("?")[1]).get("runs");
  return Promise.all(seeds.map((one) => {
    const path = (ids, when) => `${run.path}/clients?seed=${one}&round=${when}&runs=${ids}`;
    const asked = [path(chosen, round), path(chosen, "latest"), path(whole, round)].find(has) ?? path(whole, "latest");
    return run.once(runs.map(({ version }) => version).join(), asked, () => json(asked));
  }));
}

/** One row for each client, by preference: of several seeds with the same clients their means, else of the first seed. */
function rowsOf(asked, run, selection) {
  const who = ({ rows }) => JSON.stringify(rows.map((row) => [row.client, row.preference]));
  const answers = asked.filter((one) => who(one) === who(asked[0]));
  if (answers.length < asked.length) answers.length = Math.min(1, answers.length);
  const [first = { rows: [] }] = answers;
  const rows = first.rows.map((row, i) => {
    const all = answers.map((one) => one.rows[i]);
    const keys = answers.map((one) => `${run.id}:${one.seed}:${row.client}`);
    const found = { ...row, keys, gains: all.map((one) => one.gain) };
    for (const name of AVERAGED) if (name in row) found[name] = mean(all.map((one) => one[name]));
    for (const name of ["sent", "trained"]) found[name] = row[name]?.map((_, j) => mean(all.map((one) => one[name]?.[j])));
    found.cluster = all.every((one) => one.cluster === row.cluster) ? row.cluster : null;
    found.attacker = all.filter((one) => one.attacker).length;
    return found;
  });
  const parted = (a, b) => (a.preference ?? []).reduce((found, w, j) => found || w - b.preference[j], 0);
  const before = (a, b) => parted(a, b) || a.client - b.client;
  return {
    ...first, answers, seeds: answers.map((one) => one.seed), all: rows.length, isOne: answers.length < asked.length,
    rows: rows.filter(({ keys }) => keys.some((key) => selection.isShown(key))).sort(before),
  };
}

const called = (row) => (row.name ? `client ${row.client} (${row.name})` : `client ${row.client}`);
const wish = (row) => row.preference?.map((w) => number(w, 2)).join(" : ") ?? "–";
const isFinite = (row) => Boolean(row.sent?.every(Number.isFinite));

function where({ run: { entry }, seeds, round }) {
  const which = seeds.length > 1 ? `means of ${seeds.length} seeds` : `seed ${seeds[0]}`;
  return `${entry.label}, round ${round}, ${which}, split ${entry.held_out}`;
}

// -- wanted and got ---------------------------------------------------------------------------------------------------

function drawWanted({ shown, chart }, found, version, isChosen) {
  const { run } = found;
  const { names, maximise } = run;
  const rows = found.rows.filter(isFinite).map((row) => ({
    ...row, colour: ofPreference(row.preference),
    words: [called(row), `wanted ${wish(row)}`, ...names.map((name, j) => `${name} ${number(row.sent[j])}`)].join("\n"),
  }));
  const isTriangle = names.length === 3;
  chart.draw((isTriangle ? triangle : slopes)(rows, names, maximise), version, isChosen);
  const held = names.map((name, j) => [name, ...inOrder(rows, j, maximise[j])]).filter(([, , of]) => of);
  const how = isTriangle
    ? "From the ring, what a client wanted, to the dot, what it got: its values as shares, between the worst and the best of these clients."
    : "Each line goes from what a client wanted to what it got; where none cross, all got more of what they wanted more.";
  const pairs = held.map(([name, got, of]) => `who wanted more ${name} got more of it in ${number(got)} of ${number(of)} pairs of clients`);
  shown.caption(`${where(found)}, what the server gave. ${how}${pairs.length ? ` Here ${listed(pairs)}.` : ""}`);
  shown.root.dataset.clients = rows.length;
  const weights = names.map((name) => `weight of ${name}`);
  shown.setTable(["client", ...weights, ...names], () => rows.map((row) => [row.client, ...row.preference, ...row.sent]));
}

/** Of the pairs in which one wanted more of a goal: in how many it got more, and how many there are. */
function inOrder(rows, j, isUp) {
  let [held, of] = [0, 0];
  if (rows.length > MOST_PAIRED) return [0, 0];
  for (const a of rows) {
    for (const b of rows) {
      if (!(a.preference[j] > b.preference[j])) continue;
      of++;
      if (isUp ? a.sent[j] > b.sent[j] : a.sent[j] < b.sent[j]) held++;
    }
  }
  return [held, of];
}

function centred(x, y, text, kind = null) {
  return svg("text", { class: kind, x, y, "text-anchor": "middle", text });
}

/** A panel for each goal: its weight on the left, its value on the right. */
function slopes(rows, names, maximise) {
  return (width) => {
    const across = Math.max(1, Math.min(names.length, Math.floor(width / 260)));
    const [wide, high] = [width / across, 332];
    const frame = [];
    const panels = names.map((name, j) => {
      const [left, top] = [(j % across) * wide + 40, Math.floor(j / across) * high + 30];
      const [right, low] = [left + wide - 90, top + high - 62];
      frame.push(centred((left + right) / 2, low + 22, `${name} (better ↑)`, "axis"));
      const side = (of, at, title, isUp, out) => {
        const scale = linear(roomy(extent([rows.map(of)]), 0.04), isUp ? [low, top] : [top, low]);
        const values = ticks(scale.domain, 5);
        const anchor = { x: at + out, "text-anchor": out < 0 ? "end" : "start" };
        const texts = tickTexts(values).map((text, i) => svg("text", { ...anchor, y: scale(values[i]) + 4, text }));
        frame.push(svg("path", { class: "axis-line", d: `M${at} ${top}V${low}` }), centred(at, top - 10, title), ...texts);
        return (row) => [at, scale(of(row))];
      };
      return [side((row) => row.preference[j], left, "wanted", true, -7), side((row) => row.sent[j], right, "got", maximise[j], 7)];
    });
    const threads = rows.map((row) => {
      const ends = panels.map((sides) => sides.map((of) => of(row)));
      const dots = ends.flat().map(([x, y]) => mark(0, x, y, 3)).join("");
      return { ...row, d: ends.map(([a, b]) => `M${a}L${b}`).join(""), dots, at: ends[0][1] };
    });
    return { height: Math.ceil(names.length / across) * high, frame, threads };
  };
}

function triangle(rows, names, maximise) {
  const ends = names.map((_, j) => extent([rows.map((row) => row.sent[j])]));
  const shares = ({ sent }) => {
    const scaled = ends.map(([low, high], j) => (maximise[j] ? sent[j] - low : high - sent[j]) / (high - low || 1));
    const sum = scaled.reduce((a, b) => a + b, 0);
    return scaled.map((one) => (sum > 0 ? one / sum : 1 / 3));
  };
  return (width) => {
    const side = Math.min(width - 70, 430);
    const low = 26 + side * 0.866;
    const corners = [[width / 2, 26], [(width - side) / 2, low], [(width + side) / 2, low]];
    const place = (weights) => [0, 1].map((k) => weights.reduce((sum, w, j) => sum + w * corners[j][k], 0));
    const named = names.map((text, j) => centred(corners[j][0], corners[j][1] + (j ? 20 : -9), text, "axis"));
    const frame = [svg("path", { class: "field", d: `M${corners.join("L")}Z` }), named];
    const threads = rows.map((row) => {
      const [from, to] = [place(row.preference), place(shares(row))];
      return { ...row, d: `${mark(0, ...from, 4)}M${from}L${to}`, dots: mark(0, ...to, 4.5), at: to };
    });
    return { height: low + 30, frame, threads };
  };
}

// -- does federation pay? ---------------------------------------------------------------------------------------------

/** Who is better off, in one sentence. */
function payText(known, { answers }) {
  const better = known.filter((row) => row.gain > 0);
  const always = better.filter((row) => row.gains.every((one) => one > 0)).length;
  const worst = known.reduce((a, b) => (b.gain < a.gain ? b : a));
  const means = answers.map((_, s) => mean(known.map((row) => row.gains[s])));
  const several = means.length > 1;
  const decimals = Math.max(2, decimalsOf(deviation(several ? means : known.map((row) => row.gain))));
  const inAll = several ? ` on average over ${means.length} seeds${better.length ? ` (${always || "none"} of them in every seed)` : ""}` : "";
  const over = several ? ` ± ${number(deviation(means), decimals)}` : "";
  const who = `${better.length} of ${counted(known.length, "client")} ${better.length === 1 ? "is" : "are"} better off than alone${inAll}`;
  const worse = known.filter((row) => row.gain < 0).map((row) => row.client).sort((a, b) => a - b);
  const named = worse.length && worse.length <= 12 ? ` Better off alone: client${worse.length > 1 ? "s" : ""} ${listed(worse)}.` : "";
  return `${who}; worst ${signed(worst.gain, decimals)} (${called(worst)}), mean ${signed(mean(means), decimals)}${over}.${named}`;
}

function drawGains({ shown, chart }, known, found, pays, version, isChosen) {
  chart.draw((width) => {
    const [left, height] = [58, 332];
    const y = linear(roomy(extent([[0], known.flatMap((row) => row.gains)])), [height - 48, 22]);
    const step = (width - left - 12) / known.length;
    const every = Math.ceil(24 / step);
    const values = ticks(y.domain, 5);
    const frame = tickTexts(values).flatMap((text, i) => [
      svg("path", { class: values[i] ? "grid" : "axis-line", d: `M${left} ${y(values[i])}H${width - 12}` }),
      svg("text", { x: left - 7, y: y(values[i]) + 4, "text-anchor": "end", text }),
    ]);
    frame.push(svg("text", { class: "axis", x: left, y: 12, text: "↑ better off than alone" }));
    frame.push(centred(width / 2, height - 8, "clients, by preference", "axis"));
    const threads = known.map((row, i) => {
      const x = left + (i + 0.5) * step;
      if (i % every === 0) frame.push(centred(x, height - 30, row.client));
      const [least, most] = extent([row.gains]).map(y);
      const inSeeds = row.gains.length > 1 ? `\nin the seeds ${row.gains.map((one) => signed(one, 3)).join(", ")}` : "";
      return {
        ...row, colour: ofPreference(row.preference), thick: Math.max(1, Math.min(16, step * 0.6)),
        d: `M${x} ${y(0)}V${y(row.gain)}`, whisker: `M${x} ${least}V${most}`, at: [x, y(row.gain)],
        words: `${called(row)}\nwanted ${wish(row)}\ngain ${signed(row.gain, 4)}${inSeeds}`,
      };
    });
    return { height, frame, threads };
  }, version, isChosen);
  const several = found.seeds.length > 1 ? " Bars are means, thin lines go from the least to the most of the seeds." : "";
  const what = "utility under its own preference, less that of the same client in the run of local";
  shown.caption(`${where(found)}: ${what}. ${pays}${several}`);
  const seeds = found.seeds.map((one) => `seed ${one}`);
  shown.setTable(["client", "wanted", "gain over local", ...seeds], () => known.map((row) => [row.client, wish(row), row.gain, ...row.gains]));
}

async function drawAnswer(node, { run, page, alone, private: isPrivate, rows }, pays) {
  const isAsked = !pays && !alone && !isPrivate;
  const who = ({ entry }) => [kindOf(entry), entry.clients, JSON.stringify(entry.spec.preferences)].join();
  const others = isAsked ? [...page.shelf.runs.values()] : [];
  const ready = others.find((one) => one.entry.algorithm === "local" && one.entry.lines && who(one) === who(run));
  const repeat = isAsked && !ready && (await run.about()).commands?.repeat;
  const add = () => page.state.set({ runs: [...page.runs.map((one) => one.id), ready.id].join() }, { push: true });
  const text = pays
    || (isPrivate && "Preferences stay with the nodes: what each client wanted, its utility and its regret are not known here.")
    || (alone === run.id && "This is the run in which each client is alone. Choose another one above to compare.")
    || (alone && "The run of local has other clients, seeds or preferences, so no gain can be told.")
    || (ready && "Compare with the run in which each client trains alone:")
    || "That needs a run of local, in which each client trains alone, with the same clients and seeds:";
  renew(node, [run.id, text, ready?.id, page.runs.length].join(), () => [
    el("div", { class: "callout" },
      el("h2", { text: isPrivate ? "What is private" : "Does federation pay?" }),
      el("p", { text, data: { pays: Boolean(pays) } }),
      ready && button(`add ${ready.entry.label}`, add),
      repeat && command(repeat.replace("fedpareto run", "fedpareto run local").replace(/ --out \S+/, ""), page.say)),
    run.names.length > 1 && rows.some((row) => row.preference) && preferenceKey(run.names),
  ]);
}

// -- run by run -------------------------------------------------------------------------------------------------------

/** What the clients of a run have: numbers of each seed, then their means. */
function sumOf(run, { answers }) {
  const over = (name, of) => mean(answers.map(({ rows }) => of(rows.map((row) => row[name]).filter(Number.isFinite))));
  const least = (values) => (values.length ? Math.min(...values) : NaN);
  const most = (values) => (values.length ? Math.max(...values) : NaN);
  const gains = answers[0].rows.map((_, i) => mean(answers.map(({ rows }) => rows[i].gain))).filter(Number.isFinite);
  const better = gains.length ? gains.filter((one) => one > 0).length : NaN;
  return {
    run, of: gains.length,
    values: [over("utility", mean), over("utility", least), over("regret", mean), over("regret", most), better],
  };
}

async function drawRuns(shown, page) {
  const runs = page.runs.filter((run) => run.entry.started.length).slice(0, MOST_RUNS);
  const asked = runs.length > 1 ? await Promise.all(runs.map((run) => answersOf(run, page))) : [];
  const all = asked.flatMap((each, i) => (each.length ? [sumOf(runs[i], rowsOf(each, runs[i], page.selection))] : []));
  shown.root.hidden = !all.some(({ values }) => Number.isFinite(values[0]));
  if (shown.root.hidden) return;
  const goals = [["mean utility", 1], ["worst utility", 1], ["mean regret", -1], ["worst regret", -1]];
  const figures = goals.map(([title, better]) => ({ title, better, text: (value) => number(value, 4) }));
  const counts = { title: "clients better off", better: 1, text: (value, { of }) => (of ? `${value} of ${of}` : "–"), about: "than in the run of local, on average over seeds" };
  const columns = ["run", ...figures, counts];
  const rows = all.map(({ run, of, values }) => Object.assign([run.entry.label, ...values], { run, of }));
  renew(shown.plot, JSON.stringify([rows, all.map(({ run }) => run.id)]), () => table({
    columns, rows, caption: "Clients of each run", rowProps: ({ run }) => ({ data: { of: run.id } }),
  }));
  const left = page.runs.length - runs.length;
  shown.caption(`What clients have under their own preferences: the mean and the worst of each seed, then means over the seeds.${left > 0 ? ` ${counted(left, "more run")} not shown.` : ""}`);
  shown.setTable(columns.map((one) => one.title ?? one), () => rows);
}

// -- client by client -------------------------------------------------------------------------------------------------

function noteOf({ rows, all, isOne, seeds }) {
  const lost = rows.filter((row) => !isFinite(row)).map((row) => row.client);
  return [
    isOne && `Preferences differ between seeds, so this is seed ${seeds[0]} alone; choose another in the bar.`,
    rows.length < all && `${all - rows.length} of ${counted(all, "client")} are filtered out.`,
    lost.length && `Not finite: clients ${lost.slice(0, 20).join(", ")}${lost.length > 20 ? " and others" : ""}.`,
  ].filter(Boolean).join(" ");
}

function columnsOf(rows, names) {
  const figures = (value) => number(value, 4);
  const goals = (name) => names.map((goal, j) => [`${goal} ${name}`, (row) => row[name]?.[j], figures]);
  const found = [
    ["client", (row) => row.client, null, -1],
    ["attacker", ({ attacker, keys }) => (attacker ? (keys.length > 1 ? `in ${counted(attacker, "seed")}` : "yes") : null)],
    ["wanted", (row) => row.preference && wish(row)],
    ["regret", (row) => row.regret, figures, 1, "what the best model of the shown runs would give it beyond what it has"],
    ["gain over local", (row) => row.gain, (value) => signed(value, 4), -1, "utility less that of training alone"],
    ["utility", (row) => row.utility, figures, -1, "of what the server gave, under its own preference"],
    ["utility trained", (row) => row.utility_trained, figures, -1, "after its own steps, under its own preference"],
    ...goals("sent"),
    ...goals("trained"),
    ["cluster", (row) => row.cluster],
    ["missed rounds", (row) => row.missed],
    ["bytes up", (row) => row.bytes_up, bytes],
    ["bytes down", (row) => row.bytes_down, bytes],
  ];
  const isKnown = (value) => value !== null && value !== undefined && !Number.isNaN(value);
  const shown = found.filter(([, of]) => rows.some((row) => isKnown(of(row))));
  return shown.map(([title, of, text, better, about]) => ({ title, of, text, better, about }));
}

function drawList(shown, found, version, isChosen, pick) {
  const { page, run, rows } = found;
  const columns = columnsOf(rows, run.names);
  const box = (row) => tick(called(row), false, () => pick(row));
  const place = () => shown.plot.querySelector(".scroll");
  const [left, top, focused] = [place()?.scrollLeft, place()?.scrollTop, shown.plot.querySelector("tr:has(:focus)")?.dataset.client];
  renew(shown.plot, version, () => {
    const [by, turn] = (page.state.get("sort") ?? "regret:-1").split(":");
    const at = columns.findIndex((one) => one.title === by);
    const cells = (row) => columns.map(({ of }, j) => (j ? of(row) : { value: row.client, node: box(row) }));
    return table({
      columns, caption: "Clients", sort: at < 0 ? [0, 1] : [at, Number(turn)],
      rows: rows.map((row) => Object.assign(cells(row), { row })),
      onSort: ([j, direction]) => page.state.set({ sort: `${columns[j].title}:${direction}` }),
      rowProps: ({ row: { client, regret = "", gain = "", utility = "" } }) => ({ data: { client, regret, gain, utility } }),
    });
  });
  // Whoever reads or ticks here stays with the same client, wherever its row is now.
  if (focused) shown.plot.querySelector(`tr[data-client="${focused}"] input`)?.focus({ preventScroll: true });
  if (top || left) place().scrollTo(left, top);
  const byClient = new Map(rows.map((row) => [String(row.client), row]));
  for (const line of shown.plot.querySelectorAll("tbody tr")) {
    const chosen = isChosen(byClient.get(line.dataset.client));
    line.classList.toggle("chosen", chosen);
    line.querySelector("input").checked = chosen;
  }
  const served = rows.filter((row) => Number.isFinite(row.regret)).sort((a, b) => b.regret - a.regret);
  const worst = listed(served.slice(0, 3).map((row) => `${called(row)} (regret ${number(row.regret, 3)})`));
  const average = number(mean(served.map((row) => row.regret)), 3);
  const count = found.against.length;
  const regret = `Regret is what the best model of ${count > 1 ? `the ${count} shown runs` : "this run"} would give a client beyond what it has`;
  const told = served.length ? ` Worst served: ${worst}; mean regret ${average}. ${regret}.` : "";
  shown.caption(`${counted(rows.length, "client")}: ${where(found)}.${told}`);
  shown.setTable(columns.map((one) => one.title), () => rows.map((row) => columns.map((one) => one.of(row))));
}
