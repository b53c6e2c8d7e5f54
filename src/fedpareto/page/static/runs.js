// Runs as the page knows them: only what is new is asked for.

import { frame, json } from "./source.js";

/** Numbers of each line of a run, growing with it. */
class Lines {
  constructor(path) {
    this.path = path;
    this.epoch = 0;
    this.total = 0;
    this.columns = new Map();
  }

  async refresh() {
    const { head, columns } = await frame(`${this.path}/lines?since=${this.total}&epoch=${this.epoch}`);
    if (head.epoch !== this.epoch || head.since !== this.total) this.columns = new Map();
    this.epoch = head.epoch;
    for (const [name, { data }] of columns) this.columns.set(name, this.grown(name, head, data));
    this.total = head.total;
    for (const [name, column] of this.columns) {
      if (column.length < this.total) this.columns.set(name, this.grown(name, { since: column.length, total: this.total }, []));
    }
  }

  grown(name, { since, total }, data) {
    const before = this.columns.get(name);
    let room = before?.buffer.byteLength / 8 || 0;
    if (room < total) room = total + 1024;
    const whole = before && before.buffer.byteLength / 8 >= total ? before : new Float64Array(room);
    const found = new Float64Array(whole.buffer, 0, total);
    if (before && whole !== before) found.set(before);
    found.fill(NaN, Math.min(before?.length ?? 0, total), total);
    found.set(data, since);
    return found;
  }

  /** Float64Array with a number for each line, or null. */
  column(name) {
    return this.columns.get(name) ?? null;
  }

  /** By seed, the places of its lines in the order of rounds. */
  bySeed() {
    const seeds = this.column("seed") ?? [];
    const rounds = this.column("round") ?? [];
    const found = new Map();
    for (let i = 0; i < seeds.length; i++) {
      if (!found.has(seeds[i])) found.set(seeds[i], []);
      found.get(seeds[i]).push(i);
    }
    for (const places of found.values()) places.sort((a, b) => rounds[a] - rounds[b]);
    return found;
  }
}

/** Objectives of each client in each line, growing with the run. */
class Values {
  constructor(path, evaluation, split) {
    this.path = `${path}/values?eval=${evaluation}&split=${encodeURIComponent(split)}`;
    this.epoch = 0;
    this.total = 0;
    this.lines = [];
  }

  async refresh() {
    const { head, columns } = await frame(`${this.path}&since=${this.total}&epoch=${this.epoch}`);
    if (head.epoch !== this.epoch || head.since !== this.total) this.lines = [];
    const { data, shape } = columns.get("values");
    const size = shape[1] * shape[2];
    head.lines.forEach(([seed, round], i) => {
      this.lines.push({ seed, round, data: data.subarray(i * size, (i + 1) * size), clients: shape[2] });
    });
    Object.assign(this, { epoch: head.epoch, total: head.total, every: head.every });
  }

  /** By seed, the line of a round, or of the last one before it; of "latest" the last. */
  at(round) {
    const found = new Map();
    for (const line of this.lines) {
      if (round !== "latest" && line.round > round) continue;
      const before = found.get(line.seed);
      if ((!before || line.round >= before.round) && isKnown(line)) found.set(line.seed, line);
    }
    return found;
  }
}

function isKnown(line) {
  line.known ??= line.data.some((one) => !Number.isNaN(one));
  return line.known;
}

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

  /** Its numbers, line by line: see Lines. */
  lines() {
    return this.fresh("lines", () => new Lines(this.path));
  }

  /** Its clients' objectives: see Values. */
  values(evaluation, split) {
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

/**
 * The clients' points of a run: {seed, client, round, columns: [array for each objective], preference(i)}.
 * Of the latest round of a finished run they are its solutions.
 */
export async function points(run, { evaluation, split, round, seed }) {
  const wanted = (one) => seed === "all" || Number(seed) === one;
  const m = run.entry.objectives.length;
  const parts = [];
  const { head, columns } = await run.solutions(split);
  if (round === "latest" && evaluation === "sent" && run.finished) {
    for (const { seed: one, round: end, clients, count } of head.solutions) {
      const data = columns.get(`values.${one}`)?.data;
      if (data && wanted(one)) parts.push({ seed: one, round: end, clients, count, data });
    }
  } else {
    const values = await run.values(evaluation, split);
    for (const line of values.at(round === "latest" ? round : Number(round)).values()) {
      if (wanted(line.seed)) parts.push({ ...line, clients: null, count: line.clients });
    }
  }
  const count = parts.reduce((sum, part) => sum + part.count, 0);
  const found = { run, count, seed: new Int32Array(count), client: new Int32Array(count), round: new Int32Array(count) };
  found.columns = Array.from({ length: m }, () => new Float64Array(count));
  let at = 0;
  for (const part of parts) {
    const end = at + part.count;
    found.seed.fill(part.seed, at, end);
    found.round.fill(part.round, at, end);
    for (let i = 0; i < part.count; i++) found.client[at + i] = part.clients ? part.clients[i] : i;
    for (let j = 0; j < m; j++) found.columns[j].set(part.data.subarray(j * part.count, (j + 1) * part.count), at);
    at = end;
  }
  found.key = (i) => `${run.id}:${found.seed[i]}:${found.client[i]}`;
  found.preference = (i) => {
    const data = columns.get(`preferences.${found.seed[i]}`)?.data;
    const own = data && Array.from(data.subarray(found.client[i] * m, (found.client[i] + 1) * m));
    return own?.length === m && own.every(Number.isFinite) ? own : null;
  };
  return found;
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
  changed({ run, lines, epoch, status }) {
    const entry = this.runs.get(run)?.entry;
    // What a run records is known after its first rounds.
    if (!entry || entry.lines < 2 * entry.seeds.length) return false;
    Object.assign(entry, { lines, epoch, status: { ...entry.status, ...status }, changed: Date.now() / 1000 });
    return true;
  },
};
