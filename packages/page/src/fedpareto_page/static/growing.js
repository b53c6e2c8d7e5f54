// What a run has more of with every round: only what is new is asked for, and nothing is kept twice.

import { frame } from "./source.js";

const MORE = 16;
const OF_CLIENTS = /^(sent|trained)\./;
const OF_SPLIT = /^(?:sent|trained)\.(.+)\.\d+$/;

/**
 * Numbers that more can follow: those that were there, in the same memory where it is large enough. Room for many times as
 * many is set aside and taken when it is needed, so that growing copies next to nothing and leaves nothing behind.
 */
export function longer(before, length, Type = Float64Array) {
  const bytes = length * Type.BYTES_PER_ELEMENT;
  if (before instanceof Type && before.buffer.maxByteLength >= bytes) {
    if (before.buffer.byteLength < bytes) before.buffer.resize(bytes);
    return new Type(before.buffer, 0, length);
  }
  const found = new Type(new ArrayBuffer(bytes, { maxByteLength: MORE * bytes + 8192 }), 0, length);
  if (before) found.set(before);
  return found;
}

/** Half of the bytes where these hold the numbers exactly, as the server sends them. */
function typeOf(...arrays) {
  const isShort = (one) => !one || one instanceof Float32Array || (Array.isArray(one) && one.every((value) => value === null || Math.fround(value) === value));
  return arrays.every(isShort) ? Float32Array : Float64Array;
}

/** Numbers of each line of a run, growing with it. Of its splits, those that somebody has asked for. */
export class Lines {
  constructor(path, left) {
    this.path = path;
    this.left = new Set(left);
    this.epoch = 0;
    this.total = 0;
    this.begin();
  }

  /** Whether the means of a split are here; if not, they come with the next answer, which has all lines. */
  keeps(split) {
    const isLeft = this.left.delete(split);
    this.isShort ||= isLeft;
    return !isLeft;
  }

  isKept(name) {
    return !this.left.has(OF_SPLIT.exec(name)?.[1]);
  }

  begin() {
    this.columns = new Map();
    this.positive = new Map();
    this.orders = new Map();
    this.ordered = 0;
    /** Whether each line of a seed is of a later round than the one before. */
    this.isInOrder = true;
    // What was made of the lines before does not go on with these.
    this.generation = Symbol();
  }

  async refresh() {
    this.isAsking = true;
    if (this.isShort) Object.assign(this, { epoch: 0, total: 0, isShort: false }).begin();
    try {
      const { head, columns } = await frame(`${this.path}/lines?since=${this.total}&epoch=${this.epoch}`);
      if (head.epoch !== this.epoch || head.since !== this.total) this.begin();
      Object.assign(this, { epoch: head.epoch, total: head.total });
      for (const [name, { data }] of columns) {
        // Most runs have no clock, no battery, no privacy: what nobody knows takes no room.
        if (this.columns.has(name) || (this.isKept(name) && data.some(Number.isFinite))) this.columns.set(name, this.grown(name, head.since, data));
      }
      this.fill();
    } finally {
      this.isAsking = false;
    }
  }

  /** Takes lines that the server told unasked, if they follow on those that are here; says whether. */
  take({ epoch, since, lines, numbers }) {
    // An answer that is under way has them too.
    if (!numbers || this.isAsking || this.isShort || epoch !== this.epoch || since !== this.total) return false;
    this.total = lines;
    for (const name in numbers) if (this.isKept(name)) this.columns.set(name, this.grown(name, since, numbers[name]));
    this.fill();
    return true;
  }

  /** What is not known of the newest lines. */
  fill() {
    for (const [name, column] of this.columns) {
      if (column.length < this.total) this.columns.set(name, this.grown(name, this.total, new Float32Array()));
    }
  }

  grown(name, since, data) {
    const before = this.columns.get(name);
    // A run records what clients have in single precision, so that means of it have no further digits.
    const Type = OF_CLIENTS.test(name) ? Float32Array : typeOf(before, data);
    const found = longer(before, this.total, Type);
    found.fill(NaN, before?.length ?? 0);
    for (let i = 0; i < data.length; i++) found[since + i] = data[i] ?? NaN;
    return found;
  }

  /** An array with a number for each line, or null. */
  column(name) {
    return this.columns.get(name) ?? null;
  }

  /** Whether any number of a column is above zero; those that were looked at are not looked at again. */
  hasPositive(name) {
    const column = this.column(name) ?? [];
    let first = this.positive.get(name) ?? 0;
    while (first < column.length && !(column[first] > 0)) first++;
    this.positive.set(name, first);
    return first < column.length;
  }

  /** By seed, the places of its lines in the order of rounds. */
  bySeed() {
    const [seeds, rounds] = ["seed", "round"].map((name) => this.column(name) ?? []);
    const fresh = Map.groupBy(Array.from({ length: this.total - this.ordered }, (_, i) => this.ordered + i), (i) => seeds[i]);
    for (const [seed, places] of fresh) {
      const before = this.orders.get(seed) ?? new Int32Array();
      const found = longer(before, before.length + places.length, Int32Array);
      found.set(places, before.length);
      const isLate = (place, k) => rounds[place] < rounds[found[before.length + k - 1]];
      if (places.some(isLate)) {
        found.sort((a, b) => rounds[a] - rounds[b]);
        Object.assign(this, { isInOrder: false, generation: Symbol() });
      }
      this.orders.set(seed, found);
    }
    this.ordered = this.total;
    return this.orders;
  }
}

/** Objectives of each client in each line, growing with the run. */
export class Values {
  constructor(path, evaluation, split) {
    this.path = `${path}/values?eval=${evaluation}&split=${encodeURIComponent(split)}`;
    this.epoch = 0;
    this.total = 0;
    this.begin();
  }

  begin() {
    Object.assign(this, { count: 0, seeds: null, rounds: null, data: null });
  }

  async refresh() {
    const { head, columns } = await frame(`${this.path}&since=${this.total}&epoch=${this.epoch}`);
    if (head.epoch !== this.epoch || head.since !== this.total) this.begin();
    const { data, shape } = columns.get("values");
    const [before, count, size] = [this.count, this.count + shape[0], shape[1] * shape[2]];
    const Type = typeOf(this.data, data);
    Object.assign(this, { epoch: head.epoch, total: head.total, every: head.every, clients: shape[2], size, count });
    Object.assign(this, { seeds: longer(this.seeds, count), rounds: longer(this.rounds, count), data: longer(this.data, count * size, Type) });
    head.lines.forEach(([seed, round], i) => {
      this.seeds[before + i] = seed;
      this.rounds[before + i] = round;
    });
    this.data.set(data, before * size);
  }

  line(i) {
    return { seed: this.seeds[i], round: this.rounds[i], clients: this.clients, data: this.data.subarray(i * this.size, (i + 1) * this.size) };
  }

  /** Of each seed, the line of a round, or of the last one before it; of "latest" the last. */
  at(round) {
    const found = new Map();
    for (let i = 0; i < this.count; i++) {
      if (round !== "latest" && this.rounds[i] > round) continue;
      const before = found.get(this.seeds[i]);
      if ((before === undefined || this.rounds[i] >= this.rounds[before]) && this.isKnown(i)) found.set(this.seeds[i], i);
    }
    return [...found.values()].map((i) => this.line(i));
  }

  isKnown(i) {
    for (let k = i * this.size; k < (i + 1) * this.size; k++) if (!Number.isNaN(this.data[k])) return true;
    return false;
  }

  /** An objective of all clients in the lines of which isWanted(seed, round). */
  all(objective, isWanted) {
    const places = [];
    for (let i = 0; i < this.count; i++) if (isWanted(this.seeds[i], this.rounds[i])) places.push(i);
    const found = new Float64Array(places.length * this.clients);
    places.forEach((i, k) => {
      const from = i * this.size + objective * this.clients;
      found.set(this.data.subarray(from, from + this.clients), k * this.clients);
    });
    return found;
  }
}
