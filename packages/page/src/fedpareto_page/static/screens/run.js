// Run: what it is, what happened, how to do it again; stop and resume.

import { Course } from "../curves.js";
import { button, choice, command, el, put, renew } from "../dom.js";
import { figure } from "../charts/figure.js";
import { Lines } from "../charts/lines.js";
import { table } from "../charts/table.js";
import { extent } from "../maths.js";
import { json, post } from "../source.js";
import { bytes, counted, number, secondsLeft, time } from "../words.js";
import { begun } from "./starting.js";

export const styles = ["new"];
export const bar = [];

const COMMANDS = { show: "See it in a terminal", resume: "Go on with it", stop: "Stop it", repeat: "Repeat it", predict: "Predict with its models", look: "See the mission: orbits, contacts, transfers", page: "This page" };
const MOST_EVENTS = 500;
const A_SECOND = 1000;
const A_WHILE = 5000;

export function mount(root, page) {
  const parts = Object.fromEntries(["head", "acts", "curve", "commands", "spec", "other", "events", "about"].map((name) => [name, el("section", { class: name })]));
  const events = { since: 0, list: [], epoch: null };
  const act = { busy: "", failed: "" };
  const known = {};
  put(root, parts.head, parts.acts, parts.curve, el("div", { class: "columns" }, el("div", {}, parts.commands, parts.other), parts.spec), parts.events, parts.about);

  const run = () => page.shelf.runs.get(state().id);
  const state = () => ({ id: page.state.path.split("/")[2] ?? "", against: page.state.get("against") });
  const link = (text, path, changes) => el("a", { href: page.href(path, changes), text, on: { click: (event) => {
    event.preventDefault();
    page.go(path, changes);
  } } });

  // -- stop and resume ------------------------------------------------------------------------------------------------

  async function ask(doing, path, body, isStart = false) {
    Object.assign(act, { busy: doing, failed: "" });
    acts();
    try {
      await post(path, body);
      act.failed = (isStart && (await begun(state().id))) || "";
      if (!isStart) page.say("The request is in the run's folder.");
      await page.shelf.load();
    } catch (problem) {
      act.failed = problem.message;
    }
    if (isStart || act.failed) act.busy = "";
    acts();
  }

  function acts() {
    const { entry, path } = run();
    const isGoing = entry.status.name === "running" && entry.status.busy !== false;
    const isOver = entry.status.name === "finished";
    if (!isGoing && act.busy.startsWith("Stopping")) act.busy = "";
    if (page.isSaved || page.shelf.about.read_only) return put(parts.acts);
    return renew(parts.acts, JSON.stringify([entry.id, isGoing, isOver, act.busy, act.failed]), () => [
      act.failed && el("p", { class: "callout bad", role: "alert", text: act.failed }),
      act.busy && el("p", { class: "soft", role: "status", text: act.busy }),
      el("div", { class: "row" },
        isGoing && button("stop after this round", () => ask("Stopping after this round …", `${path}/stop`, { now: false })),
        isGoing && button("stop now", () => ask("Stopping now; the round under way will be repeated …", `${path}/stop`, { now: true })),
        link("repeat it with changes", "/new", { like: entry.id })),
      !isGoing && !isOver && (entry.private
        ? el("p", { class: "soft", text: "It is the run of a federation, whose server goes on with it, by the command below." })
        : resumption(entry, path)),
    ]);
  }

  /** Whether a run goes on, not what it computes, may be another when it is resumed. What was typed stays. */
  function resumption(entry, path) {
    if (act.of !== entry.id) {
      const keys = ["quorum", ...Object.keys(entry.spec).filter((key) => key.startsWith("faults."))];
      act.of = entry.id;
      act.inputs = keys.map((key) => [key, el("input", { type: "text", id: `r-${key}`, placeholder: String(entry.spec[key] ?? 0), inputmode: "decimal" })]);
    }
    const set = () => act.inputs.filter(([, one]) => one.value.trim()).map(([key, one]) => `${key}=${one.value.trim()}`);
    const fields = act.inputs.map(([key, one]) => el("label", { class: "choice" }, el("span", { text: key }), one));
    return el("form", { class: "row", on: { submit: (event) => (event.preventDefault(), ask("Reading libraries and data …", `${path}/resume`, { set: set() }, true)) } },
      el("button", { type: "submit", class: "main", text: "resume", disabled: Boolean(act.busy) }),
      el("details", {}, el("summary", { text: "resume with changes" }), el("div", { class: "row" }, fields)));
  }

  // -- how it goes ----------------------------------------------------------------------------------------------------

  const live = new Lines({ label: "The result over rounds. Arrow keys walk along the line.", height: 150, on: { read: page.say } });
  const going = figure({ title: "How it goes", name: "run", vector: () => live.vector() });
  going.plot.append(live.root);
  const course = new Course("round", "all");

  /** What the shelf tells of it, round by round: the mean over the seeds. */
  async function curve(one) {
    const { entry } = one;
    const isShown = entry.lines > entry.seeds.length && entry.objectives.length > 0 && !page.isSaved;
    renew(parts.curve, String(isShown), () => (isShown ? going.root : []));
    if (!isShown) return;
    const [what, column] = one.names.length > 1 ? ["hypervolume", "hypervolume"] : [`mean ${one.names[0]}`, `sent.${entry.held_out}.0`];
    const found = course.follow(await one.lines(entry.held_out), {}).curve(column, false);
    const last = found?.ys.findLastIndex(Number.isFinite) ?? -1;
    if (last < 0) return;
    const { xs, ys } = found;
    const words = (i) => `round ${xs[i]}\n${what} ${number(ys[i])}`;
    const series = [{ id: one.id, label: entry.label, xs, ys, colour: "var(--c0)", version: one.version, lasting: `${course.era} ${column}`, words }];
    live.draw({ x: { title: "rounds", domain: [0, entry.rounds], whole: true }, y: { title: what, domain: extent([ys]) }, series });
    const seeds = entry.seeds.length > 1 ? `, mean over ${entry.seeds.length} seeds` : "";
    going.caption(`${what} after round ${xs[last]} of ${entry.rounds}: ${number(ys[last])}${seeds}.`);
    going.setTable(["round", what], () => Array.from(xs, (x, i) => [x, ys[i]]));
  }

  // -- what it is -----------------------------------------------------------------------------------------------------

  function head({ entry }) {
    const { name, round, seconds, message, busy, process } = entry.status;
    const alone = name === "running" && busy === false;
    const left = secondsLeft(entry);
    const soon = name === "running" && Number.isFinite(left) ? `, about ${time(left)} left` : "";
    const how = alone ? `nobody works on it since round ${round} of ${entry.rounds}` : `${name}, round ${round} of ${entry.rounds}, ${time(seconds)}${soon}`;
    const facts = [entry.problem, counted(entry.clients, "client"), counted(entry.seeds.length, "seed"), entry.began && `began ${entry.began.replace("T", " ").slice(0, 16)} UTC`, process && !alone && `process ${process.pid} on ${process.host}`];
    renew(parts.head, JSON.stringify([entry.status, entry.label, entry.name, page.shelf.about.title]), () => [
      el("h2", { text: named(entry) }),
      el("p", {}, el("span", { class: `pill ${alone ? "stopped" : name}`, text: how }), " ", el("span", { class: "soft", text: facts.filter(Boolean).join(" · ") })),
      message && el("p", { class: `callout ${name === "failed" ? "bad" : "warn"}`, text: message }),
      entry.has.mission && el("p", { class: "callout", text: "This run is a space mission: its clients are satellites, and messages wait for contacts. The command below writes its own page, with orbits and transfers." }),
      el("p", { class: "row" }, [["Fronts", "/fronts"], ["Rounds", "/rounds"], ["Clients", "/clients"]].map(([text, path]) => link(text, path, { runs: entry.id, sel: null }))),
    ]);
    document.title = `${entry.label} · fedpareto`;
  }

  function described(entry, about) {
    const { commands, spec, versions, choices, changes, warnings, files } = about;
    renew(parts.commands, JSON.stringify(commands), () => [
      el("h2", { text: "As commands" }),
      Object.entries(COMMANDS).filter(([key]) => commands[key]).map(([key, text]) => [el("p", { class: "label", text }), command(commands[key], page.say)]),
    ]);
    renew(parts.spec, spec, () => [el("h2", { text: "spec.yaml" }), el("pre", { tabindex: "0", text: spec })]);
    renew(parts.about, JSON.stringify([versions, choices, changes, warnings, files]), () => [
      warnings?.length > 0 && [el("h2", { text: "Warnings" }), el("ul", {}, warnings.map((one) => el("li", { text: one })))],
      changes?.length > 0 && [el("h2", { text: "Changed when it was resumed" }), table({ caption: "Changes", columns: ["after round", "what", "before", "then"], rows: changes.flatMap(({ round, ...what }) => Object.entries(what).map(([key, [before, then]]) => [round, key, text(before), text(then)])) })],
      el("div", { class: "columns" },
        pairs("Versions", versions),
        pairs("What was measured when it began", choices),
        el("div", {}, el("h2", { text: "Files" }), table({ caption: "Files", columns: ["file", "size"], rows: files.map((one) => [one.name, { value: one.bytes, node: el("span", { text: bytes(one.bytes) }) }]) }))),
    ]);
  }

  function pairs(name, found) {
    const rows = Object.entries(found ?? {}).map(([key, value]) => [key, text(value)]);
    return rows.length > 0 && el("div", {}, el("h2", { text: name }), table({ caption: name, columns: ["name", "value"], rows }));
  }

  async function compared(entry, against) {
    const others = page.shelf.entries.filter((one) => !one.error && one.id !== entry.id);
    const other = others.find((one) => one.id === against);
    if (!others.length || page.isSaved) return put(parts.other);
    const path = other && `/api/compare?runs=${entry.id},${other.id}`;
    if (path && path !== known.path) Object.assign(known, { path, answer: await json(path) });
    const answer = other && known.answer;
    return renew(parts.other, JSON.stringify([entry.id, others.map((one) => one.id), answer?.differences]), () => [
      el("h2", { text: "Compared with another" }),
      choice("run", [["", "…"], ...others.map((one) => [one.id, named(one)])], against ?? "", (id) => page.state.set({ against: id })),
      answer && (answer.differences.length
        ? table({ caption: "What differs", columns: ["parameter", entry.label, other.label], rows: answer.differences.map(({ key, values }) => [key, text(values[entry.id]), text(values[other.id])]) })
        : el("p", { class: "soft", text: "Nothing differs: these runs have the same spec." })),
    ]);
  }

  /** The newest first; only what is new is asked for. */
  async function happened({ entry, path }) {
    if (events.epoch !== entry.epoch || events.id !== entry.id) Object.assign(events, { since: 0, list: [], asked: 0, epoch: entry.epoch, id: entry.id });
    if (page.isSaved) return put(parts.events);
    if (entry.status.name === "running" && Date.now() - events.asked < A_SECOND) return null;
    events.asked = Date.now();
    const { total, events: found } = await json(`${path}/events?since=${events.since}`);
    events.list = [...[...found].reverse(), ...events.list].slice(0, MOST_EVENTS);
    events.since = total;
    root.dataset.events = total;
    return renew(parts.events, `${entry.id}.${entry.epoch}.${total}`, () => [
      el("h2", { text: "Missing and refused replies" }),
      total > 0
        ? table({ caption: "Missing and refused replies, the newest first", columns: ["round", "seed", "client", "reason"], rows: events.list.map((one) => [one.round, one.seed, one.client, one.reason]) })
        : el("p", { class: "soft", text: "None: every client that was asked has replied." }),
      total > events.list.length && el("p", { class: "soft", text: `The newest ${events.list.length} of ${total}.` }),
    ]);
  }

  /** One that has just been started comes to the shelf in a moment: until then nobody is told that it is not there. */
  const sought = {};
  function missing(id) {
    if (sought.id !== id) {
      Object.assign(sought, { id, isOver: false });
      clearTimeout(sought.timer);
      sought.timer = setTimeout(() => ((sought.isOver = true), screen.update()), A_WHILE);
    }
    return sought.isOver ? "There is no such run on the shelf." : "Looking for this run …";
  }

  const screen = {
    async update() {
      const { id, against } = state();
      const found = run();
      root.dataset.run = found ? id : "";
      if (!found) {
        const damaged = page.shelf.entries.find((one) => one.id === id);
        for (const node of Object.values(parts)) renew(node, "", () => []);
        return put(parts.head, damaged
          ? el("p", { class: "callout bad", text: `${damaged.name}: ${damaged.error}` })
          : el("p", { class: "soft", text: missing(id) }));
      }
      clearTimeout(sought.timer);
      root.dataset.status = found.entry.status.name;
      head(found);
      acts();
      await curve(found);
      described(found.entry, await found.about());
      await compared(found.entry, against);
      return happened(found);
    },
    unmount() {
      clearTimeout(sought.timer);
      live.destroy();
    },
  };
  return screen;
}

/** A run by its label, and its folder where that says more. */
function named({ label, name }) {
  return label.includes(name) ? label : `${label} · ${name}`;
}

function text(value) {
  return value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
}
