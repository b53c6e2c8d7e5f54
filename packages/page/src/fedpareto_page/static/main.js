// The frame: screens, the shelf beside them, what all of them share, and what is new.

import { button, choice, el, filled, put, renew, svg, worded } from "./dom.js";
import { mark, styles } from "./palette.js";
import { kindOf, shelf } from "./runs.js";
import { drawer, makeRoom, selection } from "./selection.js";
import { isSaved, onEvent } from "./source.js";
import { href, state } from "./state.js";
import { tidy } from "./tidy.js";
import { counted, EVALUATIONS, time } from "./words.js";

const SCREENS = {
  "/": ["Shelf", () => import("./screens/shelf.js")],
  "/fronts": ["Fronts", () => import("./screens/fronts.js")],
  "/rounds": ["Rounds", () => import("./screens/rounds.js")],
  "/clients": ["Clients", () => import("./screens/clients.js")],
  "/film": ["Film", () => import("./screens/film.js")],
  "/attacks": ["Attacks", () => import("./screens/attacks.js")],
  "/federation": ["Federation", () => import("./screens/federation.js")],
  "/dial": ["Dial", () => import("./screens/dial.js")],
  "/studies": ["Studies", () => import("./screens/studies.js")],
  "/new": ["New", () => import("./screens/new.js")],
  "/run": ["Run", () => import("./screens/run.js")],
};
/** Screens that need a server. */
const LIVE_ONLY = ["/attacks", "/federation", "/dial", "/studies", "/new"];
const MOST_CHOSEN = 8;
/** Milliseconds from one look at new rounds to the next: eyes need no more, and a run may have hundreds in a second. */
const BETWEEN = 200;
/** Milliseconds from one look at how far runs are, beside the screen, to the next: all of the page is laid out anew. */
const SELDOM = 5000;

const at = (id) => document.getElementById(id);
const host = { screen: null, path: null, pending: new Set(), busy: false, due: null, looked: -Infinity };

// -- what screens see -------------------------------------------------------------------------------------------------

/** The runs that are chosen: those in the address, or the newest that can stand side by side. */
function chosen() {
  const asked = state.get("runs")?.split(",").filter(Boolean);
  if (asked) return asked.map((id) => shelf.runs.get(id)).filter(Boolean);
  const known = [...shelf.runs.values()].filter((run) => run.entry.lines);
  known.sort((a, b) => b.entry.changed - a.entry.changed);
  // What was there first stays: a new run joins those that it can stand beside, and takes nobody's place.
  if (!known.some((run) => kindOf(run.entry) === host.kind)) host.kind = known.length ? kindOf(known[0].entry) : null;
  return known.filter((run) => kindOf(run.entry) === host.kind).slice(0, MOST_CHOSEN).sort((a, b) => byName(a.entry, b.entry));
}

const { compare } = new Intl.Collator("en", { numeric: true });

function byName(a, b) {
  return compare(a.name, b.name);
}

const page = {
  state,
  shelf,
  selection,
  isSaved,
  runs: [],
  styles: new Map(),
  /** Reads a sentence to those who do not see the screen. */
  say(text) {
    at("said").textContent = text;
  },
  go: state.go,
  /** Updates the screen for a reason of its own. */
  refresh: () => schedule("screen"),
  /** The same when it is about new rounds only. */
  look: () => schedule("data"),
  href,
  /** What is shown, for captions: evaluation, rows, round and seeds in words. */
  get view() {
    const entry = this.runs[0]?.entry;
    const split = state.get("split") ?? entry?.held_out;
    const seed = this.runs.some((run) => run.entry.started.includes(state.number("seed"))) ? state.get("seed") : "all";
    return { evaluation: state.get("eval"), split: entry?.splits.includes(split) ? split : entry?.held_out, round: state.get("round"), seed };
  },
  inWords() {
    const { evaluation, split, round, seed } = this.view;
    const when = round === "latest" ? "latest round" : `round ${round}`;
    return `${EVALUATIONS[evaluation]}, split ${split}, ${when}, ${seed === "all" ? "all seeds" : `seed ${seed}`}`;
  },
  /** Changes when the legend does. */
  legendKey(focus = "") {
    return [focus, ...this.runs.map((run) => run.id + run.entry.label)].join();
  },
  /** The runs with their marks; with `click` as buttons. */
  legend(click = null, pressed = () => false) {
    return el("ul", { class: "legend" }, this.runs.map((run) => {
      const content = [swatch(this.styles.get(run.id)), el("span", { text: run.entry.label })];
      const node = click ? filled(button("", () => click(run), { aria: { pressed: String(pressed(run)) } }), {}, content) : content;
      return el("li", {}, node);
    }));
  },
  swatch,
  /** Where matplotlib's PDF of a figure is; a saved page has none. */
  paper: (name) => (isSaved ? null : () => `/api/figure/${name}.pdf?runs=${page.runs.map((run) => run.id).join(",")}`),
};

/** A run's mark in its colour. */
function swatch(style) {
  if (!style) return el("span", { class: "swatch" });
  return svg("svg", { class: "swatch", viewBox: "-8 -8 16 16", style: { "--own": style.colour }, aria: { hidden: "true" } }, svg("path", { d: mark(style.shape, 0, 0, 6) }));
}

function comparable() {
  const runs = chosen();
  const kind = runs.length ? kindOf(runs[0].entry) : "";
  page.runs = runs.filter((run) => kindOf(run.entry) === kind);
  page.left = runs.filter((run) => kindOf(run.entry) !== kind);
  page.styles = styles(page.runs, [...shelf.runs.values()].filter((run) => kindOf(run.entry) === kind));
}

// -- one screen at a time ---------------------------------------------------------------------------------------------

/** "/run/4f1c" is the screen /run of a run. */
function screenPath() {
  const first = `/${state.path.split("/")[1] ?? ""}`;
  if (isSaved && LIVE_ONLY.includes(first)) return "/fronts";
  return first in SCREENS ? first : "/";
}

async function show() {
  const path = screenPath();
  const [name, load] = SCREENS[path];
  if (page.play?.timer) page.play.stop();
  host.screen?.unmount?.();
  Object.assign(host, { screen: null, path });
  at("title").textContent = name;
  document.title = `${name} · fedpareto`;
  const root = put(at("screen"), el("p", { class: "soft", text: "…" }));
  for (const key of Object.keys(root.dataset)) delete root.dataset[key];
  try {
    const module = await load();
    await Promise.all((module.styles ?? []).map(styled));
    const rounds = module.bar?.includes("round") ? await import("./scrubber.js") : null;
    if (host.path !== path) return;
    host.rounds = rounds;
    page.uses = module.bar ?? [];
    page.play = rounds?.play;
    put(root);
    host.screen = module.mount(root, page);
    schedule("state");
  } catch (problem) {
    fault(problem);
  }
}

/** A screen's own style, once; a saved page has all of them. */
function styled(name) {
  if (isSaved || at(`style-${name}`)) return null;
  const link = el("link", { id: `style-${name}`, rel: "stylesheet", href: new URL(`./screens/${name}.css`, import.meta.url) });
  return new Promise((done) => {
    link.onload = link.onerror = done;
    document.head.append(link);
  });
}

/** Updates at most once a frame, and never while the last update is still waiting for its numbers. */
function schedule(why) {
  host.pending.add(why);
  delete at("screen").dataset.settled;
  if (host.busy || host.timer) return;
  // New rounds have waited already, and are drawn once they are here: that is the frame to wait for.
  const later = document.hidden ? (f) => setTimeout(f, 100) : why === "data" ? setTimeout : requestAnimationFrame;
  host.timer = later(async () => {
    host.timer = null;
    host.busy = true;
    const reasons = host.pending;
    host.pending = new Set();
    try {
      comparable();
      const isOnlyData = reasons.size === 1 && reasons.has("data");
      if (!isOnlyData) frame();
      makeRoom(at("drawer"));
      await host.screen?.update?.(reasons);
      // Beside the new rounds, in one frame with them.
      if (isOnlyData) bar();
      // After the screen, which knows what stands beside the names.
      drawer(at("drawer"), page);
      at("fault")?.remove();
    } catch (problem) {
      fault(problem);
    }
    host.busy = false;
    if (host.pending.size) schedule(host.pending.values().next().value);
    // What is on the screen is what the address says.
    else if (host.screen) at("screen").dataset.settled = "";
  });
}

/** Shows new rounds: at once if there were none for a while, else when it is time. */
function scheduleRounds() {
  host.due ??= setTimeout(() => {
    Object.assign(host, { due: null, looked: performance.now() });
    schedule("data");
    tidy();
  }, Math.max(0, host.looked + BETWEEN - performance.now()));
}

function fault(problem) {
  if (!problem.status && problem.message !== "The server does not answer.") console.error(problem);
  at("fault")?.remove();
  at("screen").prepend(el("p", { id: "fault", class: "callout bad", role: "alert", text: problem.message }));
}

// -- around the screen ------------------------------------------------------------------------------------------------

function frame() {
  views();
  actions();
  shelfList();
  bar();
  liveness();
}

function views() {
  const shown = Object.entries(SCREENS).filter(([path]) => path !== "/run" && !(isSaved && LIVE_ONLY.includes(path)));
  const addresses = shown.map(([path]) => href(path));
  renew(at("views"), addresses.join() + host.path, () => shown.map(([path, [name]], i) => {
    const click = (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      state.go(path);
    };
    return el("a", { href: addresses[i], text: name, "aria-current": path === host.path ? "page" : null, on: { click } });
  }));
}

/** What can be done with what is seen. */
function actions() {
  if (isSaved) return void renew(at("actions"), "saved", () => [button("?", help, { aria: { label: "Keys and words" } })]);
  const ids = page.runs.map((run) => run.id).join(",");
  const view = href(state.path);
  const address = `/api/save?runs=${ids}&view=${encodeURIComponent(view)}`;
  const name = `fedpareto-${SCREENS[host.path][0].toLowerCase()}.html`;
  const can = ids && !LIVE_ONLY.includes(host.path);
  renew(at("actions"), address, () => [can && el("a", { href: address, download: name, text: "save this view as HTML" }), button("?", help, { aria: { label: "Keys and words" } })]);
}

const found = { text: "", told: new Map() };
function shelfList() {
  const { entries, about } = shelf;
  const key = JSON.stringify([entries.map((one) => [one.id, one.label, one.error]), page.runs.map((run) => run.id), found.text, about.reading]);
  if (!found.search) {
    found.search = el("input", { type: "search", placeholder: "find a run", aria: { label: "Find a run" }, on: { input: () => {
      found.text = found.search.value.toLowerCase();
      shelfList();
    } } });
    found.list = el("div");
    found.summary = el("summary");
    found.note = el("p", { class: "warn" });
    put(at("shelf"), el("details", { open: !matchMedia("(max-width: 800px)").matches }, found.summary, found.search, found.note, found.list));
  }
  const shown = entries.filter((one) => !found.text || JSON.stringify([one.name, one.algorithm, one.problem]).toLowerCase().includes(found.text));
  const groups = grouped(shown);
  const picked = new Set(page.runs.map((run) => run.id));
  worded(found.summary, `Runs (${page.runs.length} of ${entries.length} shown)`);
  renew(found.list, key, () => [
    about.reading && el("p", { class: "soft", text: `reading: ${Math.round((100 * about.reading.done) / Math.max(1, about.reading.of))} %` }),
    [...groups].map(([problem, members]) => [el("h2", { text: problem }), el("ul", {}, members.sort(byName).map((one) => shelfItem(one, picked)))]),
    !shown.length && el("p", { class: "soft", text: entries.length ? "No run has this in its name." : "No runs yet." }),
  ]);
  for (const one of shown) if (!one.error) worded(found.told.get(one.id), `${one.name} · ${nowOf(one)}`);
}

/** How far a run is. */
function nowOf({ status, rounds }) {
  return status.name === "running" ? `round ${status.round} of ${rounds}` : status.name;
}

function grouped(entries) {
  const groups = new Map();
  const add = (key, one) => groups.set(key, [...(groups.get(key) ?? []), one]);
  for (const one of entries) add(one.problem ?? "cannot be read", one);
  return groups;
}

function shelfItem(entry, picked) {
  if (entry.error) return el("li", {}, el("p", { class: "bad", text: `${entry.name}: ${entry.error}` }));
  const box = el("input", { type: "checkbox", checked: picked.has(entry.id), on: { change: () => toggle(entry.id) } });
  found.told.set(entry.id, el("span", { class: "soft" }));
  return el("li", {}, el("label", {}, box, swatch(page.styles.get(entry.id)), el("span", { class: "name", text: entry.label }), found.told.get(entry.id)));
}

/** What an address says of one problem only. */
const OF_A_PROBLEM = Object.fromEntries(
  ["sel", "only", "without", "split", "seed", "round", "range", "view", "wish", "x", "y", "charts", "focus"].map((key) => [key, null]),
);

/** Another run on or off; one that cannot stand beside the others takes their place. */
function toggle(id) {
  const ids = page.runs.map((run) => run.id);
  const run = shelf.runs.get(id);
  const fits = !page.runs.length || kindOf(run.entry) === kindOf(page.runs[0].entry);
  if (!fits) {
    const why = `${run.entry.label} is on another problem, or has other goals, so it is shown alone.`;
    page.say(why);
    found.note.textContent = why;
    state.set({ ...OF_A_PROBLEM, runs: id }, { push: true });
    return;
  }
  found.note.textContent = "";
  const others = ids.includes(id) ? ids.filter((one) => one !== id) : [...ids, id];
  state.set({ runs: others.join(",") || "none", sel: null }, { push: true });
}

function bar() {
  const uses = page.uses ?? [];
  const entry = page.runs[0]?.entry;
  const { evaluation, split, round, seed } = page.view;
  const last = Math.max(0, ...page.runs.map(({ entry }) => Math.max(entry.status.round, reached(entry))));
  // Not the round: a slider that is being moved stays what it is.
  const key = JSON.stringify([uses, entry?.id, entry?.splits, evaluation, split, seed, page.left?.length]);
  if (!entry) return renew(at("bar"), "", () => []);
  const seeds = [...new Set(page.runs.flatMap((run) => run.entry.started))].sort((a, b) => a - b);
  renew(at("bar"), key, () => [
    uses.includes("eval") && choice("model", Object.entries(EVALUATIONS), evaluation, (value) => state.set({ eval: value })),
    uses.includes("split") && choice("rows", entry.splits, split, (value) => state.set({ split: value === entry.held_out ? null : value })),
    uses.includes("seed") && choice("seeds", [["all", "all"], ...seeds.map((one) => [one, String(one)])], seed, (value) => state.set({ seed: value })),
    host.rounds?.scrubber(round, last),
    page.left?.length > 0 && el("p", { class: "warn", text: `Not shown: ${page.left.map((run) => run.entry.label).join(", ")}; another problem, or other goals.` }),
  ]);
  return host.rounds?.scrubbed(round, last);
}

/** How far a run is by its rows, one of each seed after each round: its status is told less often. */
function reached({ lines, started }) {
  return Math.ceil(lines / Math.max(1, started.length)) - 1;
}

// -- what is new ------------------------------------------------------------------------------------------------------

const lost = { since: null };
function liveness() {
  const running = shelf.entries.filter((one) => one.status?.name === "running" && one.status.busy !== false).length;
  const text = isSaved
    ? `saved with fedpareto ${shelf.about.version ?? ""}`
    : lost.since !== null
      ? `lost, trying again for ${time((Date.now() - lost.since) / 1000)}`
      : running ? `live: ${counted(running, "run")} going on` : "live";
  if (at("live").textContent === text) return;
  filled(at("live"), { class: `live ${lost.since !== null ? "lost" : running ? "" : "still"}` }).textContent = text;
}

let reloading = null;
let isStale = false;
/** What is told while an answer is under way may be newer than it: then it is asked for once more. */
function reload() {
  isStale = reloading !== null;
  reloading ??= shelf.load().then(() => schedule("shelf"), fault).finally(() => {
    reloading = null;
    if (isStale) reload();
  });
  return reloading;
}

/** Whether a stream begins with more than the page has read. */
function isBehind({ server, changes }) {
  return server !== shelf.about.server || changes > shelf.about.changes;
}

function listen() {
  onEvent((name, data) => {
    lost.since = name === "lost" ? data.since : null;
    liveness();
    if (name === "shelf" || name === "found" || (name === "hello" && isBehind(data))) reload();
    else if (name === "changed") {
      if (!shelf.changed(data) || reloading) reload();
      else if (page.runs.some((run) => run.id === data.run) || host.path === "/" || state.path.endsWith(data.run)) scheduleRounds();
      found.due ??= setTimeout(() => {
        found.due = null;
        shelfList();
        liveness();
      }, SELDOM);
    } else if (name === "other") schedule("other");
  });
  setInterval(() => lost.since !== null && liveness(), 1000);
}

/** What the keys do, and what the words mean. */
async function help() {
  const { terms } = await import("./help.js");
  const dialog = el("dialog", { aria: { label: "Keys and words" }, on: { close: () => dialog.remove() } }, terms(), button("close", () => dialog.close()));
  document.body.append(dialog);
  dialog.showModal();
}

addEventListener("keydown", (event) => {
  if (event.target.closest?.("input, textarea, select") || event.metaKey || event.ctrlKey || event.altKey) return;
  if (event.key === "?") help();
  else if (event.key === "Escape") {
    if (at("drawer").contains(document.activeElement)) at("main").focus();
    state.set({ sel: null, range: null, only: null, without: null });
  }
  else if (event.key === "k" && selection.size()) state.set({ only: state.get("sel"), sel: null, range: null });
  else if (event.key === "x" && selection.size()) state.set({ without: selection.joined("without", "sel"), sel: null, range: null });
});

// A page that comes back from the browser's memory has missed what was new.
addEventListener("pageshow", (event) => event.persisted && location.reload());

// Pictures hold colours of the paper they were drawn on.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);

state.onChange((isOther) => {
  if (screenPath() !== host.path) show();
  else schedule("state");
  if (isOther) scrollTo(0, 0);
});

try {
  await shelf.load();
  comparable();
  if (!isSaved) listen();
  await show();
} catch (problem) {
  fault(problem);
}
