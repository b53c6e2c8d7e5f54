// How much each goal matters: weights, and the slider for two goals.
// Weights are whole hundredths that add up to 100, so that what is shown, asked and written is the same.

import { el } from "../dom.js";

/** What all weights add up to. */
export const WHOLE = 100;

/** Whole numbers that are nearly those, and add up to what they should. */
function rounded(exact, total) {
  const found = exact.map((one) => Math.floor(one + 1e-9));
  const order = exact.map((one, j) => [one - found[j], j]).sort((a, b) => b[0] - a[0]);
  const left = total - found.reduce((a, b) => a + b, 0);
  for (let i = 0; i < left; i++) found[order[i][1]]++;
  return found;
}

function scaled(weights, total) {
  const known = weights.map((one) => (one > 0 ? one : 0));
  const sum = known.reduce((a, b) => a + b, 0);
  return rounded(known.map((one) => (sum > 0 ? (one / sum) * total : total / weights.length)), total);
}

/** Any numbers as weights in proportion. */
export function hundredths(weights) {
  return scaled(weights, WHOLE);
}

/** One weight becomes another; the others keep their proportions. */
export function linked(weights, j, value) {
  const mine = Math.min(WHOLE, Math.max(0, Math.round(value)));
  const found = scaled(weights.filter((_, i) => i !== j), WHOLE - mine);
  found.splice(j, 0, mine);
  return found;
}

/** As they stand in the address and in a command. */
export function weightText(weights) {
  return weights.map((one) => one / WHOLE).join(",");
}

/** "accuracy 0.37, parity 0.63". */
export function inWords(names, weights) {
  return names.map((name, j) => `${name} ${(weights[j] / WHOLE).toFixed(2)}`).join(", ");
}

/** {root, show(weights)}; `change` gets other weights. What more than two goals need comes when there are so many. */
export async function control(names, change) {
  return names.length === 2 ? slider(names, change) : (await import("./dial_weights.js")).weights(names, change);
}

function slider(names, change) {
  const range = el("input", { type: "range", min: 0, max: WHOLE, step: 1, id: "dial", aria: { label: `Weight of ${names[0]} against ${names[1]}` } });
  range.addEventListener("input", () => change([Number(range.value), WHOLE - Number(range.value)]));
  const told = [1, 0].map((j) => el("span", { class: "end" }, el("strong", { text: names[j] }), el("output")));
  return {
    root: el("div", { class: "dial" }, told[0], range, told[1]),
    show(weights) {
      if (Number(range.value) !== weights[0]) range.value = weights[0];
      range.setAttribute("aria-valuetext", inWords(names, weights));
      told.forEach((one, i) => (one.lastChild.textContent = (weights[1 - i] / WHOLE).toFixed(2)));
    },
  };
}
