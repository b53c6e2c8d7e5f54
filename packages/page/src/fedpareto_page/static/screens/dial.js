// Dial: a preference moves, and with it a model along its front and the decisions on rows.

import { figure } from "../charts/figure.js";
import { Lines } from "../charts/lines.js";
import { Scatter } from "../charts/scatter.js";
import { tip } from "../charts/tip.js";
import { button, choice, command, download, el, put, renew, worded } from "../dom.js";
import { json, post } from "../source.js";
import { counted, csvCell, number } from "../words.js";
import { control, hundredths, inWords, linked, weightText } from "./dial_control.js";
import { along, drawFront, drawGroups, drawStrips, pinButtons, STEPS, yesOf } from "./dial_pictures.js";
import { rowTable, stripesOf } from "./dial_rows.js";

export const styles = ["dial"];
export const bar = [];

const TAB = Math.random().toString(36).slice(2);
const AT_ONCE = 60000;
const MOST_KEPT = 400;
const files = () => import("./dial_files.js");
const SHOWN = [["all", "all rows"], ["turning", "rows that the dial can change"], ["changed", "rows that just changed"]];

export function mount(root, page) {
  const { state } = page;
  const view = { root, page, key: null, loaded: 0, edits: new Map(), answers: new Map(), parts: null };
  const heads = el("div", { class: "row" });
  const told = el("div");
  const body = el("div");
  put(root, heads, told, body);
  Object.assign(view, { heads, told, body });
  droppable(view);
  return {
    async update() {
      const run = chosen(page);
      if (!run) return put(body, el("p", { class: "soft", text: "Choose a run on the left, and turn its dial here." }));
      const asked = query(run, page);
      const key = [run.id, asked, run.entry.epoch, run.entry.status.name, view.loaded, state.get("answer")].join();
      if (key !== view.key && !(await open(view, run, asked, key))) return null;
      return turn(view);
    },
    unmount: () => close(view),
  };

  function chosen() {
    const servable = page.runs.filter((run) => run.entry.servable !== false);
    return servable.find((run) => run.id === state.get("dial")) ?? servable[0] ?? page.runs[0];
  }
}

/** Whose model it is, as the server is asked. */
function query(run, { state }) {
  const seed = state.get("seed") === "all" || !run.entry.seeds.includes(Number(state.get("seed"))) ? null : state.get("seed");
  const parts = [["client", state.get("of")], ["seed", seed]].filter(([, value]) => value !== null);
  return parts.map((pair) => pair.join("=")).join("&");
}

// -- a run and its rows -----------------------------------------------------------------------------------------------

/** Asks what the run's model can do; says whether there is anything to turn. */
async function open(view, run, asked, key) {
  const { page } = view;
  const isTurned = view.parts?.turned.root.contains(document.activeElement);
  close(view);
  const wait = setTimeout(() => put(view.told, el("p", { class: "soft", text: "The model is being read; the first one takes some seconds …" })), 300);
  let about;
  try {
    about = await json(`/api/dial/${run.id}?${asked}`);
  } finally {
    clearTimeout(wait);
  }
  Object.assign(view, { key, run, about, edits: new Map(), answers: new Map(), shown: null, last: null, strips: null, wanted: null, group: null, row: null });
  renew(view.heads, key, () => headed(view));
  view.root.dataset.ready = String(about.ready);
  if (!about.ready) {
    put(view.told, el("p", { class: "callout warn", text: `This run has no dial: ${about.reason}` }));
    return false;
  }
  put(view.told, about.rows_reason && reason(view));
  if (!about.rows) return false;
  Object.assign(view, await json(`/api/dial/${run.id}/rows?${asked}`));
  view.words = wordsOf(view);
  await build(view);
  // Whoever turns the dial by keys goes on with them when another tab brings other rows.
  if (isTurned) view.parts.turned.root.querySelector("input, [tabindex]").focus();
  page.say(`${counted(about.rows.count, "row")}, ${about.rows.name}.`);
  return true;
}

/** Why there are no rows, or others than were given, and what a table of one's own needs. */
function reason({ about }) {
  const heads = Object.keys(about.columns);
  const own = !about.rows && !("image" in about.columns);
  return el("div", { class: "callout warn" }, el("p", { text: `${about.rows_reason}.` }), own && [
    el("p", { text: `Or take rows of your own: a CSV with the columns ${heads.join(", ")}; others may be in it too.` }),
    button("download an empty CSV with these columns", () => download("rows.csv", `${heads.map(csvCell).join(",")}\n`, "text/csv")),
  ]);
}

function close(view) {
  clearTimeout(view.timer);
  for (const one of ["front", "curves", "table"]) view.parts?.[one]?.destroy();
  put(view.body);
  Object.assign(view, { parts: null, key: null });
}

function headed(view) {
  const { about, page, run } = view;
  const { state } = page;
  const servable = page.runs.filter((one) => one.entry.servable !== false);
  const whose = about.ready ? [...(about.any ? [] : [["", "the nearest of all clients"]]), ...about.clients.map((one) => [one, `client ${one}`])] : [];
  const file = el("input", { type: "file", accept: ".csv,.tsv,.txt,text/csv", class: "hidden", id: "rows-file", on: { change: () => file.files[0] && send(view, file.files[0]) } });
  return [
    servable.length > 1 && choice("run", servable.map((one) => [one.id, one.entry.label]), run.id, (id) => state.set({ dial: id, of: null }, { push: true })),
    whose.length > 1 && choice("model of", whose, about.client ?? "", (client) => state.set({ of: client || null }), { name: "of" }),
    about.ready && about.seeds.length > 1 && choice("seed", about.seeds, about.seed, (seed) => state.set({ seed })),
    about.ready && about.outputs.length > 1 && choice("answer", about.outputs.map((one, i) => [i, one.name]), answerOf(view), (value) => state.set({ answer: value === "0" ? null : value })),
    about.ready && el("span", { class: "soft", text: about.rows ? about.rows.name : "" }),
    about.ready && !("image" in about.columns) && el("span", { class: "drop" }, file, el("label", { for: "rows-file", text: "take your own rows (CSV)" })),
    about.ready && about.source?.startsWith("sent") && button("back to the first rows", () => send(view, null)),
  ];
}

/** Which of a model's answers is shown. */
function answerOf({ page, about }) {
  return Math.max(0, Math.min(about.outputs.length - 1, page.state.number("answer", 0)));
}

function upper(text) {
  return text[0].toUpperCase() + text.slice(1);
}

function wordsOf(view) {
  const { about } = view;
  const output = about.outputs[answerOf(view)] ?? { name: "the answer", classes: ["no", "yes"], measure: "probability" };
  const isYesOrNo = about.outputs.length < 2 && output.classes.length === 2;
  return {
    output, isYesOrNo,
    isShare: output.measure === "probability" && output.classes.length > 0,
    decision: (one) => (isYesOrNo ? ["no", "yes"][one] : (output.classes[one] ?? "")),
    yes: isYesOrNo ? `Yes means: ${output.name} is ${output.classes[1]}.` : `Shown is ${output.name}.`,
  };
}

/** Another table: from a file of the user's, kept in the server's memory only; null: the first one again. */
async function send(view, file) {
  try {
    const told = await post("/api/rows", { run: view.run.id, csv: file && (await (await files()).textOf(file)), name: file ? file.name : "" });
    if (file) view.page.say(`${file.name}: ${counted(told.count, "row")}.`);
    reopen(view);
  } catch (problem) {
    put(view.told, el("p", { class: "callout bad", role: "alert", text: problem.message }));
  }
}

function droppable(view) {
  const over = (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    view.root.classList.toggle("dropping", event.type === "dragover");
    if (event.type === "drop") send(view, event.dataTransfer.files[0]);
  };
  for (const name of ["dragover", "dragleave", "drop"]) view.root.addEventListener(name, over);
}

// -- what is on the screen --------------------------------------------------------------------------------------------

async function build(view) {
  const { about, page, body } = view;
  const { state } = page;
  const names = about.objectives.map((one) => one.name);
  const hover = [tip(), tip()];
  const front = new Scatter({
    label: "The model's front. Arrow keys walk along it, Enter moves the dial to a point.", height: 280,
    on: {
      hover: (text, at) => hover[0].show(text, at),
      read: page.say,
      pick: (group, i) => group.points[i].preference && state.set({ w: weightText(hundredths(group.points[i].preference)) }),
    },
  });
  const curves = new Lines({
    label: "Share of yes by group along the dial. Arrow keys walk along a line, Enter moves the dial there.", height: 220,
    on: { hover: (text, at) => hover[1].show(text, at), read: page.say, place: (x) => state.set({ w: weightText(linked(weightsOf(view), along(view), 100 * x)) }) },
  });
  const shownFront = figure({ title: "Where on the front", name: "dial-front", vector: () => front.vector() });
  const shownCurves = figure({ title: "Yes by group, all along the dial", name: "dial-groups", vector: () => curves.vector() });
  shownFront.plot.append(front.root, hover[0].root);
  shownCurves.plot.append(curves.root, hover[1].root);
  const turned = await control(names, (weights) => state.set({ w: weightText(weights) }));
  const table = rowTable(view.columns, view.rows[0], (row) => {
    Object.assign(view, { row: view.row === row ? null : row, opening: true });
    page.refresh();
  });
  const parts = { turned, front, curves, table, shownFront, shownCurves, names, axes: el("div", { class: "row" }), legend: el("ul", { class: "legend" }) };
  for (const name of ["changes", "served"]) parts[name] = el("p", { class: name });
  for (const name of ["groups", "pins", "asked", "pinned", "tools", "whatIf"]) parts[name] = el("div", { class: name });
  shownFront.plot.before(parts.axes);
  shownCurves.plot.append(parts.legend);
  put(
    body,
    el("section", { class: names.length === 2 ? "turning" : "turning still", aria: { label: "The dial" } }, turned.root, parts.changes),
    parts.pins,
    parts.served,
    el("div", { class: "columns" },
      el("div", {}, shownFront.root),
      view.words.isYesOrNo ? el("div", {}, el("h2", { text: "By group" }), parts.groups, parts.pinned) : el("div", {}, parts.pinned)),
    el("section", {}, el("h2", { text: "Rows" }), parts.tools, parts.whatIf, table.root),
    view.words.isYesOrNo && about.grouped.length > 0 && shownCurves.root,
    el("section", {}, el("h2", { text: "The same in a terminal" }), parts.asked),
  );
  view.parts = parts;
}

/** What stands in the address, as hundredths; in the middle where nothing does. */
function weightsOf({ page, about }, key = "w") {
  const found = page.state.numbers(key);
  const fits = found.length === about.objectives.length && found.every((one) => one >= 0) && found.some((one) => one > 0);
  if (!fits && key !== "w") return null;
  return fits ? hundredths(found) : hundredths(about.objectives.map(() => 1));
}

function reopen(view) {
  view.loaded++;
  view.page.refresh();
}

async function turn(view) {
  const weights = weightsOf(view);
  view.parts.turned.show(weights);
  const pins = ["a", "b"].map((key) => weightsOf(view, key));
  let answers;
  try {
    answers = await Promise.all([ask(view, weights, TAB), ...pins.map((pin) => pin && ask(view, pin))]);
  } catch (problem) {
    if (problem.status !== 409) throw problem;
    return; // A newer question was asked, and its answer will be drawn.
  }
  if (view.row !== null) view.drawWhatIf ??= (await import("./dial_what_if.js")).drawWhatIf;
  if (pins.some(Boolean)) view.drawPins ??= (await import("./dial_pins.js")).drawPins;
  const [now, ...pinned] = answers;
  if (now.source !== view.about.source) return reopen(view); // Another tab has brought other rows.
  if (view.shown !== now) Object.assign(view, { last: view.shown, shown: now });
  const base = pinned[0] && pinned[0] !== now ? pinned[0] : pinned[0] ? null : view.last;
  draw(view, { weights, pins, now, pinned, base, against: pinned[0] ? "pin A" : "the last position" });
  if (view.words.output.classes.length) strips(view, weights);
}

/** Edited cells as the server takes them: row, column, value. */
function edited(view) {
  return [...view.edits].map(([place, value]) => [parseInt(place, 10), place.slice(place.indexOf(" ") + 1), value]);
}

/** The answer under a preference; what was asked before is not asked again. */
function ask(view, weights, tab = "") {
  const edits = edited(view);
  const key = `${weights.join()} ${JSON.stringify(edits)}`;
  let found = view.answers.get(key);
  if (!found) {
    const { client, seed } = view.about;
    found = post(`/api/dial/${view.run.id}`, { preference: weights.map((one) => one / 100), client, seed, edits, tab, output: answerOf(view) });
    view.answers.set(key, found);
    found.catch(() => view.answers.delete(key));
    if (view.answers.size > MOST_KEPT) view.answers.delete(view.answers.keys().next().value);
  }
  return found;
}

function draw(view, scene) {
  const { parts } = view;
  const { weights, now, base, against } = scene;
  const changed = base ? now.decisions.filter((one, row) => one !== base.decisions[row]).length : 0;
  const sentence = changes(view, now, base, changed, against);
  worded(parts.changes, sentence);
  worded(parts.served, `${upper(now.served_by.words)}. ${measured(view, now, weights)}${unseen(now)}`);
  drawFront(view, scene);
  drawGroups(view, scene);
  view.at = weights;
  renew(parts.pins, scene.pins.join(";"), () => pinButtons(view, scene));
  view.drawPins?.(view, scene);
  tools(view);
  drawRows(view, scene);
  view.drawWhatIf?.(view, now);
  renew(parts.asked, String(view.edits.size), () => asked(view, now));
  const written = parts.asked.querySelector("code");
  if (written) worded(written, now.command);
  Object.assign(view.root.dataset, { preference: weightText(weights), changed, yes: yesOf(now), rows: now.decisions.length, against: base ? against : "" });
  tell(view, `${inWords(parts.names, weights)}. ${sentence}`);
}

function changes(view, now, base, changed, against) {
  const total = now.decisions.length;
  const yes = view.words.isYesOrNo ? `${yesOf(now)} of ${counted(total, "row")} are a yes.` : "";
  if (!base) return `${yes} ${against === "pin A" ? "This is pin A." : "Turn the dial: decisions that change are marked."}`.trim();
  if (!changed) return `No decision changed against ${against}. ${yes}`;
  const gained = now.decisions.filter((one, row) => one === 1 && base.decisions[row] !== 1).length;
  const how = view.words.isYesOrNo ? `: ${gained} to yes, ${changed - gained} to no` : "";
  return `${counted(changed, "decision")} changed against ${against}${how}. ${yes}`;
}

function measured({ about }, now, weights) {
  if (!now.values || !about.any) return ""; // Which client's model it is has been told with its figures.
  const values = about.objectives.map((one, j) => `${one.name} ${number(now.values[j])}`).join(", ");
  const near = now.measured_at && now.measured_at.some((one, j) => Math.abs(one - weights[j] / 100) > 1e-6);
  return `On held-out rows: ${values}${near ? " (at the nearest preference that was measured)" : ""}.`;
}

function unseen({ unseen: found }) {
  const names = Object.keys(found);
  return names.length ? ` Not known from training, or empty, in some rows: ${names.join(", ")}.` : "";
}

/** To those who listen, at most once a second. */
function tell(view, sentence) {
  if (view.said === sentence) return;
  view.said = sentence;
  view.telling ??= setTimeout(() => {
    view.telling = null;
    view.page.say(view.said);
  }, 1000);
}

// -- all along the dial -----------------------------------------------------------------------------------------------

/** Decisions under a hundred other weights of one goal, asked for in pieces so that the dial itself need not wait. */
function strips(view, weights) {
  const j = along(view);
  const two = weights.length === 2;
  const key = JSON.stringify([j, two ? 0 : linked(weights, j, 0), [...view.edits]]);
  if (view.strips?.key === key) return drawStrips(view, weights);
  if (view.wanted === key) return null;
  view.wanted = key;
  clearTimeout(view.timer);
  view.timer = setTimeout(async () => {
    const { about, run } = view;
    const all = Array.from({ length: STEPS + 1 }, (_, i) => linked(weights, j, i).map((one) => one / 100));
    const edits = edited(view);
    const size = Math.max(1, Math.floor(AT_ONCE / about.rows.count));
    const [decisions, groups] = [[], []];
    try {
      for (let i = 0; i < all.length; i += size) {
        const found = await post(`/api/dial/${run.id}`, { preferences: all.slice(i, i + size), client: about.client, seed: about.seed, edits, output: answerOf(view) });
        if (view.wanted !== key || view.run !== run) return;
        decisions.push(...found.decisions);
        groups.push(...found.groups);
      }
    } catch {
      view.wanted = null; // It is asked again at the next turn; the dial itself says what is wrong.
      return;
    }
    view.strips = { key, decisions, groups, ...stripesOf(decisions, view.words) };
    view.page.refresh();
  }, view.strips ? 300 : 0);
  return null;
}

// -- rows -------------------------------------------------------------------------------------------------------------

function tools(view) {
  const { parts, page, about } = view;
  const { state } = page;
  const shown = state.get("show") ?? "all";
  renew(parts.tools, [shown, along(view), view.edits.size].join(), () => el("div", { class: "row" },
    choice("show", SHOWN, shown, (value) => state.set({ show: value === "all" ? null : value }), { name: "show" }),
    about.objectives.length > 2 && choice("strips along", parts.names, parts.names[along(view)], (name) => state.set({ along: name })),
    !("image" in about.columns) && button("save these rows as CSV", async () => (await files()).save(view)),
    view.edits.size > 0 && button("undo all edits", () => {
      view.edits.clear();
      page.refresh();
    }),
    el("span", { class: "soft", text: `${view.words.yes} The strip shows the decision for every weight of ${parts.names[along(view)]}; a row's number opens what-if.` }),
  ));
}

function drawRows(view, { weights, now, base }) {
  const { parts, page, strips: found } = view;
  const shown = page.state.get("show");
  const all = now.decisions.map((_, row) => row);
  const order = shown === "changed" ? all.filter((row) => base && now.decisions[row] !== base.decisions[row]) : shown === "turning" && found ? all.filter(found.turns) : all;
  view.root.dataset.shown = order.length;
  parts.table.draw({
    columns: view.columns, cells: view.rows, order, probabilities: now.probabilities, decisions: now.decisions,
    before: base?.decisions ?? null, edits: view.edits, strips: found, at: weights[along(view)] / 100, words: view.words,
  });
}

function asked(view, now) {
  if (!now.command) return el("p", { class: "soft", text: "These images are in no file, so there is no command for them." });
  const { file } = view.about.rows;
  const note = view.edits.size ? "Without your edits, unless you save the rows first." : file ? "" : "These rows are in no file yet: save them as ROWS.csv first.";
  return [command(now.command, view.page.say), note && el("p", { class: "soft", text: note })];
}

