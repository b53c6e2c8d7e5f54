// What charts draw of a run over an axis. It grows with the run: a chart of an hour's rounds copies none of them.

import { longer } from "./growing.js";
import { extent } from "./maths.js";

let eras = 0;

/**
 * A run over an axis, of one seed or of "all". places: by seed, where its lines are (order), which rounds these are, and
 * at which x they begin; behind the last x is another one, where the last round ends as far as it is known. In one era
 * all points of its curves but the last stay what they are.
 */
export class Course {
  constructor(over, seed) {
    Object.assign(this, { over, seed, places: [], curves: new Map() });
  }

  /** Takes lines into account that were not there before. `axis`: {sum: names of columns, or none}. */
  follow(lines, { sum }) {
    const orders = [...lines.bySeed()].filter(([one]) => this.seed === "all" || Number(this.seed) === one);
    const isOther = lines.generation !== this.generation || orders.length !== this.places.length;
    if (isOther) Object.assign(this, { places: [], curves: new Map(), generation: lines.generation, era: ++eras });
    this.lines = lines;
    const columns = (sum ?? [this.over]).map((name) => lines.column(name));
    this.first ??= this.over === "at" ? extent(columns)[0] : 0;
    this.places = orders.map(([one, order]) => this.extended(this.places.find(({ seed }) => seed === one), one, order, columns, Boolean(sum)));
    return this;
  }

  extended(before, seed, order, columns, isSum) {
    const rounds = this.lines.column("round");
    const known = before?.order.length ?? 0;
    // Rounds are whole: half of the bytes hold them.
    const Ends = this.over === "round" ? Int32Array : Float64Array;
    const found = { seed, order, rounds: longer(before?.rounds, order.length, Int32Array), ends: longer(before?.ends, order.length + 1, Ends), total: before?.total ?? 0 };
    for (let k = known; k < order.length; k++) {
      const i = order[k];
      found.rounds[k] = rounds[i];
      found.ends[k] = isSum ? found.total : this.over === "at" ? (columns[0][i] - this.first) / 60 : columns[0][i];
      if (isSum) for (const column of columns) found.total += column[i] || 0;
    }
    if (order.length) found.ends[order.length] = found.ends[order.length - 1];
    found.xs = found.ends.subarray(0, order.length);
    return found;
  }

  /** {xs, ys, low, high} of a column, or null: the mean over seeds at what all of them have; `later`: at the end of each round. */
  curve(name, later) {
    const column = this.lines.column(name);
    if (!column || !this.places.length) return null;
    const [{ xs, ends }] = this.places;
    // One seed has its lines as they come.
    if (this.lines.orders.size === 1 && this.lines.isInOrder) return { xs: later ? ends.subarray(1) : xs, ys: column, low: null, high: null };
    const key = `${name} ${later}`;
    const found = pooled(column, this.places, later, this.curves.get(key));
    this.curves.set(key, found);
    return this.places.length === 1 ? { ...found, low: null, high: null } : found;
  }
}

function pooled(column, places, later, before) {
  const count = Math.min(...places.map(({ order }) => order.length));
  const [xs, ys, low, high] = ["xs", "ys", "low", "high"].map((name) => longer(before?.[name], count));
  // The end of the last round was not known the last time.
  for (let k = Math.max(0, (before?.ys.length ?? 0) - 1); k < count; k++) {
    let [sum, squares, x, known] = [0, 0, 0, 0];
    for (const { order, ends } of places) {
      const value = column[order[k]];
      x += ends[later ? k + 1 : k] / places.length;
      if (Number.isFinite(value)) (sum += value), (squares += value * value), known++;
    }
    const mean = known ? sum / known : NaN;
    const spread = known ? Math.sqrt(Math.max(0, squares / known - mean * mean)) : NaN;
    xs[k] = x;
    ys[k] = mean;
    low[k] = mean - spread;
    high[k] = mean + spread;
  }
  return { xs, ys, low, high };
}
