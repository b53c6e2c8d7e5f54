// Runs as the page knows them: only what is new is asked for.

import { frame, json } from "./source.js";

/** One run. */
export class Run {
  constructor(entry) {
    this.id = entry.id;
    this.path = `/api/runs/${entry.id}`;
    this.kept = new Map();
    this.entry = entry;
  }

  /** Changes whenever anything of the run does. */
  get version() {
    const { epoch, lines, status } = this.entry;
    return `${epoch}.${lines}.${status?.name}`;
  }

  get maximise() {
    return this.entry.objectives.map((one) => one.maximise);
  }

  get names() {
    return this.entry.objectives.map((one) => one.name);
  }

  get finished() {
    return this.entry.status.name === "finished";
  }

  /** Everything else about it. */
  about() {
    // Of a run that goes on, what changes with each round is asked for elsewhere.
    return this.once(`about.${this.entry.epoch}.${this.entry.status.name}`, "about", () => json(this.path));
  }

  /** Its numbers, line by line, with the means of a split: see Lines. */
  async lines(split) {
    const { Lines } = await import("./growing.js");
    const found = await this.fresh("lines", () => new Lines(this.path, this.entry.splits.filter((one) => one !== split)));
    if (found.keeps(split)) return found;
    this.kept.get("lines").version = null;
    return this.fresh("lines");
  }

  /** Takes new lines from an event: if these are all that there are, nothing is asked for. */
  take(news) {
    const entry = this.kept.get("lines");
    if (entry?.growing.take(news)) entry.version = this.version;
  }

  /** Its clients' objectives: see Values. */
  async values(evaluation, split) {
    const { Values } = await import("./growing.js");
    return this.fresh(`values.${evaluation}.${split}`, () => new Values(this.path, evaluation, split));
  }

  /** Clusters and similarities of a seed. */
  film(seed) {
    return this.once(this.version, `film.${seed}`, () => frame(`${this.path}/film?seed=${seed}`));
  }

  /** Who replied in which round. */
  grid(seed) {
    return this.once(this.version, `grid.${seed}`, () => frame(`${this.path}/grid?seed=${seed}`));
  }

  async once(version, key, ask) {
    const before = this.kept.get(key);
    if (before?.version === version) return before.found;
    const entry = { version, found: ask() };
    this.kept.set(key, entry);
    try {
      return await entry.found;
    } catch (problem) {
      if (this.kept.get(key) === entry) this.kept.delete(key);
      throw problem;
    }
  }

  async fresh(key, make) {
    if (!this.kept.has(key)) this.kept.set(key, { growing: make() });
    const entry = this.kept.get(key);
    if (entry.version === this.version) {
      await entry.pending;
      return entry.growing;
    }
    entry.version = this.version;
    // One after the other: two answers to the same question would be appended twice.
    entry.pending = (entry.pending ?? Promise.resolve()).catch(() => {}).then(() => entry.growing.refresh());
    try {
      await entry.pending;
    } catch (problem) {
      entry.version = null;
      throw problem;
    }
    return entry.growing;
  }

  /** What it ended with, and what its clients wanted, by seed. */
  solutions(split) {
    const version = `${this.entry.epoch}.${this.entry.status.name}.${this.entry.lines > 0}`;
    return this.once(version, `solutions.${split}`, () => frame(`${this.path}/solutions?split=${encodeURIComponent(split)}`));
  }
}

/** Which runs can stand side by side: same problem, same objectives, same rows. */
export function kindOf(entry) {
  const objectives = entry.objectives.map((one) => `${one.name}${one.maximise ? "+" : "-"}${one.reference}`);
  return [entry.problem, objectives.join(), entry.held_out].join("|");
}

/** All runs that the server knows, and what else it found. */
export const shelf = {
  entries: [],
  others: [],
  runs: new Map(),
  about: {},

  async load() {
    const { runs, others, ...about } = await json("/api/runs");
    Object.assign(this, { entries: runs, others, about });
    const seen = new Set();
    for (const entry of runs.filter((one) => !one.error)) {
      seen.add(entry.id);
      const known = this.runs.get(entry.id);
      if (known) known.entry = entry;
      else this.runs.set(entry.id, new Run(entry));
    }
    for (const id of this.runs.keys()) if (!seen.has(id)) this.runs.delete(id);
  },

  /** Takes a change that the server told; says whether the run is known well enough for that. */
  changed(news) {
    const { lines, epoch, status } = news;
    const run = this.runs.get(news.run);
    const entry = run?.entry;
    // What a run records is known after its first rounds.
    if (!entry || entry.lines < 2 * entry.seeds.length) return false;
    Object.assign(entry, { lines, epoch, status: { ...entry.status, ...status }, changed: Date.now() / 1000 });
    run.take(news);
    // A stream that begins after this event has no news.
    this.about.changes = news.changes;
    return true;
  },
};
