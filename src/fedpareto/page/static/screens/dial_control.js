// How much each goal matters: a slider for two goals, a triangle for three, linked sliders for more.
// Weights are whole hundredths that add up to 100, so that what is shown, asked and written is the same.

import { el, filled, svg } from "../dom.js";

const WHOLE = 100;

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

/** {root, show(weights)}; `change` gets other weights. */
export function control(names, change) {
  if (names.length === 2) return slider(names, change);
  const fields = sliders(names, change);
  if (names.length > 3) return fields;
  const plane = triangle(names, change);
  return {
    root: el("div", { class: "triangled" }, plane.root, fields.root),
    show(weights) {
      plane.show(weights);
      fields.show(weights);
    },
  };
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

function sliders(names, change) {
  let now = [];
  const parts = names.map((name, j) => {
    const to = (event) => change(linked(now, j, event.target.value * (event.target.type === "range" ? 1 : WHOLE)));
    const range = el("input", { type: "range", min: 0, max: WHOLE, step: 1, aria: { label: `Weight of ${name}` }, on: { input: to } });
    const field = el("input", { type: "number", min: 0, max: 1, step: 0.01, aria: { label: `Weight of ${name} as a number` }, on: { change: to } });
    return { range, field, root: el("div", { class: "weight" }, el("span", { text: name }), range, field) };
  });
  return {
    root: el("div", { class: "weights" }, parts.map((one) => one.root)),
    show(weights) {
      now = weights;
      parts.forEach(({ range, field }, j) => {
        range.value = weights[j];
        range.setAttribute("aria-valuetext", `${names[j]} ${(weights[j] / WHOLE).toFixed(2)}`);
        if (document.activeElement !== field || Number(field.value) * WHOLE !== weights[j]) field.value = (weights[j] / WHOLE).toFixed(2);
      });
    },
  };
}

const SIDE = 250;
const TALL = SIDE * Math.sqrt(0.75);
const EDGE = 26;
const CORNERS = [[EDGE + SIDE / 2, EDGE], [EDGE, EDGE + TALL], [EDGE + SIDE, EDGE + TALL]];
const KEYS = { ArrowUp: [2, -1, -1], ArrowDown: [-2, 1, 1], ArrowLeft: [0, 1, -1], ArrowRight: [0, -1, 1] };

function triangle(names, change) {
  let now = [34, 33, 33];
  const point = svg("circle", { class: "knob", r: 9 });
  const label = (j, props) => svg("text", { class: "axis", ...props, text: names[j] });
  const picture = svg(
    "svg",
    { class: "triangle", viewBox: `0 0 ${SIDE + 2 * EDGE} ${TALL + 2 * EDGE + 12}`, tabindex: "0", role: "application", aria: { roledescription: "triangle of weights" } },
    svg("path", { d: `M${CORNERS.map((one) => one.join(" ")).join("L")}Z` }),
    label(0, { x: CORNERS[0][0], y: EDGE - 10, "text-anchor": "middle" }),
    label(1, { x: 2, y: EDGE + TALL + 18 }),
    label(2, { x: SIDE + 2 * EDGE - 2, y: EDGE + TALL + 34, "text-anchor": "end" }),
    point,
  );
  const moved = (event) => {
    const box = picture.getBoundingClientRect();
    const scale = (SIDE + 2 * EDGE) / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    const first = 1 - (y - EDGE) / TALL;
    const third = (x - EDGE) / SIDE - first / 2;
    change(hundredths([first, 1 - first - third, third]));
  };
  picture.addEventListener("pointerdown", (event) => {
    picture.setPointerCapture(event.pointerId);
    moved(event);
  });
  picture.addEventListener("pointermove", (event) => picture.hasPointerCapture(event.pointerId) && moved(event));
  picture.addEventListener("keydown", (event) => {
    const step = KEYS[event.key];
    if (!step) return;
    event.preventDefault();
    const size = event.shiftKey ? 10 : 1;
    change(hundredths(now.map((one, j) => one + step[j] * size)));
  });
  return {
    root: picture,
    show(weights) {
      now = weights;
      const at = [0, 1].map((c) => weights.reduce((sum, one, j) => sum + (one / WHOLE) * CORNERS[j][c], 0));
      filled(point, { cx: at[0], cy: at[1] });
      picture.setAttribute("aria-label", `Weights: ${inWords(names, weights)}. Arrow keys move, with shift by tenths.`);
    },
  };
}
