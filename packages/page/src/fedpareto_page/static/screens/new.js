// New: a form from the registry; the YAML and the command beside it are checked as typed, by the command line's own code.

import { button, choice, command, el, put, renew, tick } from "../dom.js";
import { json, post } from "../source.js";
import { begun } from "./starting.js";

export const styles = ["new"];
export const bar = [];

const PAUSE = 250;
const NAMED = ["algorithm", "problem", "engine"];
const TUNED = "+ft", SAFE = "+safe";
/** What nearly every run sets. */
const FIRST = ["clients", "rounds", "seeds", "preferences"];

/** What the sections of a spec are, for people. */
const SECTIONS = { faults: "Faults", privacy: "Privacy", attack: "Attack", defence: "Defence", devices: "Devices", policy: "Whom a round waits for", selection: "Who is asked" };

export function mount(root, page) {
  const { state } = page;
  const form = { values: {}, found: null, asked: 0 };
  const parts = Object.fromEntries(["choosers", "spec", "algorithm", "problem", "sections", "told", "start"].map((name) => [name, el("div")]));
  const fields = el("form", { class: "fields", novalidate: true, aria: { label: "A new run" }, on: { submit: (event) => event.preventDefault() } },
    ["choosers", "spec", "algorithm", "problem", "sections"].map((name) => parts[name]));
  const name = el("input", { type: "text", id: "folder", placeholder: "after algorithm and problem", on: { input: soon } });
  const folder = el("div", { data: { key: "name" } }, el("label", { class: "choice" }, el("span", { text: "folder" }), name), el("p", { class: "wrong" }));
  const told = el("section", { class: "told", aria: { label: "What this comes to" } }, parts.told, folder, parts.start);

  const chosen = (kind) => form.found[`${kind}s`].find((one) => one.name === base(form.values[kind]));
  const base = (name) => name?.replace(/\+(ft|safe)$/, "");

  function set(key, value) {
    if (value === "" || value === null) delete form.values[key];
    else form.values[key] = value;
    if (NAMED.includes(key)) drop(key);
    state.set({ values: JSON.stringify(form.values) });
    soon();
  }

  /** Another algorithm or problem does not inherit parameters. */
  function drop(kind) {
    const gone = kind === "problem" ? ["problem", "learner"] : [kind];
    for (const key of Object.keys(form.values)) if (key.includes(".") && gone.includes(key.split(".")[0])) delete form.values[key];
    draw();
  }

  // -- checking -------------------------------------------------------------------------------------------------------

  function soon() {
    clearTimeout(form.timer);
    form.timer = setTimeout(check, PAUSE);
  }

  /** The newest question counts, whichever answer comes last. */
  async function check() {
    const mine = ++form.asked;
    try {
      const answer = await post("/api/check", { values: form.values, name: name.value });
      if (mine === form.asked) tell(answer);
    } catch (problem) {
      if (mine === form.asked) tell({ error: problem.message });
    }
  }

  function tell(answer) {
    form.answer = answer;
    for (const node of root.querySelectorAll("[data-key]")) mark(node, node.dataset.key === answer.field ? answer.error : "");
    if (answer.error) page.say(answer.error);
    comes();
    root.dataset.checked = JSON.stringify(form.values);
    root.dataset.error = answer.error ?? "";
  }

  /** A field's own error stands below it; a closed part with one opens. */
  function mark(node, error) {
    node.querySelector("input, select")?.setAttribute("aria-invalid", String(Boolean(error)));
    const place = node.querySelector(".wrong");
    if (place.textContent !== error) place.textContent = error;
    if (error && node.closest("details")) node.closest("details").open = true;
  }

  // -- what it comes to -----------------------------------------------------------------------------------------------

  function comes() {
    const { answer, starting, failed } = form;
    renew(parts.told, JSON.stringify(answer ?? null), () => [
      el("h2", { text: "What this comes to" }),
      answer?.error && el("p", { class: "callout bad", text: answer.field ? `${answer.field}: ${answer.error}` : answer.error }),
      answer?.yaml && [el("h3", { text: "spec.yaml, what differs from the defaults" }), el("pre", { tabindex: "0", id: "yaml", text: answer.yaml })],
      answer?.command && [el("h3", { text: "The same as a command" }), command(answer.command, page.say)],
      !answer && el("p", { class: "soft", text: "Checking …" }),
    ]);
    renew(parts.start, JSON.stringify([answer?.error, !answer, starting, failed]), () => [
      failed && el("p", { class: "callout bad", role: "alert", text: failed }),
      page.shelf.about.read_only
        ? el("p", { class: "soft", text: "This page only watches. Copy the command to start the run yourself." })
        : button(starting ? "Starting …" : "Start this run", start, { id: "start", class: "main", disabled: Boolean(starting || !answer || answer.error) }),
      starting && el("p", { class: "soft", role: "status", text: "A process of its own reads its libraries and its data. The run goes on when you close this page." }),
    ]);
  }

  async function start() {
    Object.assign(form, { starting: true, failed: null });
    comes();
    try {
      const { id } = await post("/api/start", { values: form.values, name: name.value });
      form.failed = await begun(id);
      if (!form.failed) {
        await page.shelf.load();
        return page.go(`/run/${id}`);
      }
    } catch (problem) {
      form.failed = problem.message;
    }
    form.starting = false;
    return comes();
  }

  // -- the form -------------------------------------------------------------------------------------------------------

  function draw() {
    const { found, values } = form;
    const [algorithm, problem, engine] = NAMED.map(chosen);
    renew(parts.choosers, "", () => [picker("algorithm"), picker("problem")]);
    const fine = () => !algorithm.personal && tick("with fine-tuning: each client trains on its own at the end (+ft)", values.algorithm.endsWith(TUNED), (is) => set("algorithm", algorithm.name + (is ? TUNED : "")));
    const safe = () => tick("safe: each client ends with the best, for itself, of what it was sent and what it has alone (+safe)", values.algorithm.endsWith(SAFE), (is) => set("algorithm", algorithm.name + (is ? SAFE : "")));
    const run = found.spec.map((one) => (one.name === "clients" ? { ...one, default: problem.clients } : one));
    renew(parts.spec, problem.name, () => [el("h2", { text: "The run" }), group("", run.filter((one) => FIRST.includes(one.name)))]);
    renew(parts.algorithm, values.algorithm, () => part("algorithm", `Parameters of ${values.algorithm}`, "", fine(), safe(), group("algorithm", algorithm.parameters)));
    renew(parts.problem, problem.name, () => [
      part("problem", `Parameters of ${problem.name}`, "", group("problem", problem.parameters)),
      part("learner", "How clients learn", "", group("learner", problem.learner)),
      part("", "More of the run", "", group("", run.filter((one) => !FIRST.includes(one.name)))),
    ]);
    renew(parts.sections, JSON.stringify([engine.name, found.sections.map((one) => values[`${one.name}.${one.word}`])]), () => [
      part("engine", "Where clients run", "", engineChoice(engine), group("engine", engine.parameters)),
      found.sections.map((one) => part(one.name, SECTIONS[one.name] ?? one.name, one.about, group(one.name, one.parameters.filter((each) => isUsed(one, each))))),
    ]);
    comes();
  }

  /** Whether the chosen kind has this parameter. */
  function isUsed(section, { name, used_by: kinds }) {
    const usual = section.parameters.find((one) => one.name === section.word)?.default;
    return !kinds.length || kinds.includes(form.values[`${section.name}.${section.word}`] ?? usual) || `${section.name}.${name}` in form.values;
  }

  /** A part of the form that is open where something in it is set, and for the algorithm. */
  function part(section, name, about, ...content) {
    const isSet = Object.keys(form.values).some((key) => (section ? key.startsWith(`${section}.`) : !key.includes(".") && ![...NAMED, ...FIRST].includes(key)));
    const isOther = section === "engine" && form.values.engine !== form.found.usual.engine;
    return el("details", { open: isSet || isOther || section === "algorithm" }, el("summary", { text: name }), about && el("p", { class: "soft", text: about }), content);
  }

  function engineChoice(engine) {
    const pick = choice("engine", form.found.engines.map((one) => one.name), engine.name, (value) => set("engine", value));
    return el("div", { data: { key: "engine" } }, pick, el("p", { class: "soft", text: engine.about }), el("p", { class: "wrong" }));
  }

  /** A list to search and choose from, each with what it is. */
  function picker(kind) {
    const list = el("div", { class: "picks", role: "radiogroup", aria: { label: `${kind}s` } });
    const search = el("input", { type: "search", placeholder: `find ${kind === "algorithm" ? "an" : "a"} ${kind}`, aria: { label: `Find ${kind}` }, on: { input: () => fill() } });
    const words = (one) => [one.name, one.about, one.family, one.method, one.level, one.objectives].map((each) => (typeof each === "object" ? JSON.stringify(each) : each)).join(" ").toLowerCase();
    const fill = () => {
      const text = search.value.trim().toLowerCase();
      const current = base(form.values[kind]);
      // Whoever types a name finds it first, then those that begin with it, that have it within, and that tell of it.
      const far = ({ name }) => [name === text, name.startsWith(text), name.includes(text), true].indexOf(true);
      const shown = form.found[`${kind}s`]
        .filter((one) => one.name === current || text.split(/\s+/).every((word) => words(one).includes(word)))
        .sort((a, b) => Boolean(text) && far(a) - far(b));
      put(list, shown.map((one) => el("label", { class: "pick" },
        el("input", { type: "radio", name: kind, value: one.name, checked: one.name === current, on: { change: () => set(kind, one.name) } }),
        el("span", {}, el("b", { text: one.name }), " ", prose(one.about), el("span", { class: "soft", text: place(one) })))));
      const mine = list.querySelector("input:checked")?.closest("label");
      list.scrollTop = mine && !text ? mine.offsetTop - list.offsetTop : 0;
    };
    const node = el("fieldset", { data: { key: kind } }, el("legend", { text: kind === "algorithm" ? "Algorithm" : "Problem" }), search, list, el("p", { class: "wrong" }));
    requestAnimationFrame(fill);
    return node;
  }

  function group(section, parameters) {
    if (!parameters.length) return el("p", { class: "soft", text: "It has no parameters." });
    return el("div", { class: "group" }, parameters.map((one) => field(section ? `${section}.${one.name}` : one.name, one)));
  }

  function field(key, one) {
    const id = `f-${key}`;
    const usual = shown(one.default);
    const value = form.values[key] === undefined ? "" : shown(form.values[key]);
    const props = { id, aria: { describedby: `${id}-about ${id}-wrong` }, on: { input: (event) => {
      set(key, event.target.value);
      if (one.choices) draw();
    } } };
    const options = one.choices ?? (one.type === "yes or no" ? ["true", "false"] : null);
    const input = options
      ? el("select", props, [["", `${usual} (default)`], ...options.filter((each) => String(each) !== usual).map((each) => [each, each])].map(([of, text]) => el("option", { value: of, text, selected: String(of) === value })))
      : el("input", { ...props, type: "text", value, placeholder: one.needed ? "needed" : usual, autocomplete: "off", spellcheck: "false", inputmode: /number/.test(one.type) ? "decimal" : null });
    return el("div", { class: "field", data: { key } }, el("label", { for: id, text: one.name }), input,
      el("p", { class: "soft", id: `${id}-about` }, prose(one.meaning)), el("p", { class: "wrong", id: `${id}-wrong` }));
  }

  // -- beginning ------------------------------------------------------------------------------------------------------

  /** What the address says: values, or a run to be repeated. */
  function begin() {
    const { found } = form;
    const like = page.shelf.runs.get(state.get("like"))?.entry;
    let given = {};
    try {
      given = like ? ofRun(like.spec) : JSON.parse(state.get("values") ?? "{}");
    } catch {
      page.say("The address has no values that could be read.");
    }
    form.values = { algorithm: found.usual.algorithm, problem: found.usual.problem, ...given };
    for (const kind of NAMED) if (form.values[kind] !== undefined && !chosen(kind)) delete form.values[kind];
    form.values = { algorithm: found.usual.algorithm, problem: found.usual.problem, ...form.values };
    form.values.engine ??= found.usual.engine;
    if (like) state.set({ like: null, values: JSON.stringify(form.values) });
  }

  /** A run's whole spec by flat names, without what is the default. */
  function ofRun(spec) {
    const flat = Object.fromEntries(Object.entries(spec).map(([key, value]) => [key.replace(/\.name$/, ""), value]));
    const [algorithm, problem, engine] = NAMED.map((kind) => form.found[`${kind}s`].find((one) => one.name === base(flat[kind])));
    const usual = { clients: problem?.clients, seeds: "1" };
    if (flat.seeds?.every((seed, i) => seed === i)) flat.seeds = String(flat.seeds.length);
    for (const [section, parameters] of [["algorithm", algorithm?.parameters], ["problem", problem?.parameters], ["learner", problem?.learner], ["engine", engine?.parameters], ["", form.found.spec], ...form.found.sections.map((one) => [one.name, one.parameters])]) {
      for (const one of parameters ?? []) usual[section ? `${section}.${one.name}` : one.name] ??= one.default;
    }
    return Object.fromEntries(Object.entries(flat).filter(([key, value]) => NAMED.includes(key) || JSON.stringify(value) !== JSON.stringify(usual[key])));
  }

  put(root, el("p", { class: "soft", text: "Reading what there is to choose from …" }));
  let isGone = false;
  json("/api/form").then((found) => {
    if (isGone) return;
    form.found = found;
    begin();
    put(root, found.broken.map((why) => el("p", { class: "callout warn", text: why })), el("div", { class: "new" }, fields, told));
    draw();
    check();
    root.dataset.algorithms = found.algorithms.length;
  }).catch((problem) => !isGone && put(root, el("p", { class: "callout bad", role: "alert", text: problem.message })));

  return {
    update() {
      const text = state.get("values");
      if (form.found && ((text && text !== JSON.stringify(form.values)) || state.get("like"))) {
        begin();
        for (const node of Object.values(parts)) node.renewedFor = null;
        draw();
        check();
      }
    },
    unmount() {
      isGone = true;
      clearTimeout(form.timer);
    },
  };
}

/** Where something belongs, in a few words. */
function place(one) {
  const goals = Array.isArray(one.objectives) ? one.objectives.map((goal) => `${goal.name} ${goal.maximise ? "↑" : "↓"}`).join(", ") : "";
  return ` ${goals || [one.place, one.method].filter(Boolean).join(" · ")}`;
}

/** A default or a value as it can be typed. */
function shown(value) {
  if (value === null || value === undefined) return "none";
  if (typeof value === "string") return value || "(empty)";
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return value.join(",") || "(none)";
  return JSON.stringify(value);
}

/** A text of our documents, in which code stands between backticks. */
function prose(text) {
  return text.split("`").map((part, i) => (i % 2 ? el("code", { text: part }) : part));
}
