// Numbers and things in words.

import { deviation, mean } from "./maths.js";

const MINUS = "−";

/** A number with so many decimals; where they are not given, with four figures that count. */
export function number(value, decimals = null) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  // Nothing is less than nothing: what rounds to zero has no sign.
  if (decimals !== null) return value.toFixed(decimals).replace(/^-(?=[0.]*$)/, "").replace("-", MINUS);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en").replace("-", MINUS);
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace("-", MINUS).replace("e-", `e${MINUS}`);
  return value.toFixed(Math.max(0, 3 - Math.floor(Math.log10(size)))).replace("-", MINUS);
}

/** A difference with its sign. */
export function signed(value, decimals = null) {
  const text = number(value, decimals);
  return value > 0 && /[1-9∞]/.test(text) ? `+${text}` : text;
}

/** Decimals that a value with this deviation deserves: the deviation's first two figures. */
export function decimalsOf(spread, value = 1) {
  const size = spread > 0 ? spread : Math.abs(value) / 1000;
  if (!(size > 0)) return 2;
  return Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(size))));
}

/** Mean ± deviation over the seeds. */
export function spreadOf(values) {
  const centre = mean(values);
  const spread = deviation(values);
  const known = Array.from(values).filter(Number.isFinite).length;
  if (known < 2) return number(centre);
  const decimals = decimalsOf(spread, centre);
  return `${number(centre, decimals)} ± ${number(spread, decimals)}`;
}

const SIZES = [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]];

/** Bytes. */
export function bytes(count) {
  if (!Number.isFinite(count)) return "–";
  const [unit, size] = SIZES.find(([, one]) => count >= one) ?? ["B", 1];
  return `${number(count / size, count >= size * 100 || size === 1 ? 0 : 1)} ${unit}`;
}

/** Seconds. */
export function time(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${number(seconds, seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${number(seconds / 60, seconds < 600 ? 1 : 0)} min`;
  if (seconds < 172800) return `${number(seconds / 3600, 1)} h`;
  return `${number(seconds / 86400, 1)} days`;
}

/** The seconds that a run may still take, as its rounds took so far. */
export function secondsLeft({ rounds, status: { round, seconds } }) {
  return round > 0 ? (seconds / round) * (rounds - round) : NaN;
}

/** How long ago something was, given in seconds since 1970. */
export function ago(then) {
  const seconds = Date.now() / 1000 - then;
  return seconds < 45 ? "just now" : `${time(seconds)} ago`;
}

/** "1 run", "2 runs". */
export function counted(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** "a, b and c". */
export function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`;
}

/** A cell for a file of comma-separated values; a program must not take it for a formula. */
export function csvCell(value) {
  const text = typeof value === "number" ? String(value) : String(value ?? "");
  const safe = typeof value !== "number" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}

/** What "sent" and "trained" mean, wherever they are shown. */
export const EVALUATIONS = {
  sent: "sent (what the server gives)",
  trained: "trained (after the client's own steps)",
};
