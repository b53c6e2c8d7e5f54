// From values to pixels.

import { number } from "../words.js";

/** A linear scale from [low, high] to pixels; with `reversed` the other way round. */
export function linear([low, high], [from, to]) {
  if (!(high > low)) [low, high] = Number.isFinite(low) ? [low - 0.5, low + 0.5] : [0, 1];
  const scale = (value) => from + ((value - low) / (high - low)) * (to - from);
  scale.invert = (pixel) => low + ((pixel - from) / (to - from)) * (high - low);
  scale.domain = [low, high];
  scale.range = [from, to];
  return scale;
}

/** A domain with a little room around it. */
export function roomy([low, high], share = 0.06) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * share;
  return [low - room, high + room];
}

/** A domain that ends at quarters of its ticks: it seldom changes while values come in, and so seldom do the axes. */
export function steady([low, high]) {
  const [first, second] = ticks([low, high]);
  const step = (second - first) / 4;
  return step > 0 ? [Math.floor(low / step) * step, Math.ceil(high / step) * step] : [low, high];
}

/** About so many round values within a domain. */
export function ticks([low, high], about = 5) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / Math.max(1, about);
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((one) => one * size).find((one) => one >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** Ticks in as many decimals as they need to differ. */
export function tickTexts(values) {
  if (values.every((one) => Number.isInteger(one))) return values.map((one) => number(one));
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) : Math.abs(values[0]) || 1;
  const decimals = Math.min(8, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
  return values.map((one) => number(one, decimals));
}
