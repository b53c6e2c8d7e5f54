// The weights of three goals in a triangle, and of any number with linked sliders.

import { el, filled, svg } from "../dom.js";
import { hundredths, inWords, linked, WHOLE } from "./dial_control.js";

/** {root, show(weights)}; `change` gets other weights. */
export function weights(names, change) {
  const fields = sliders(names, change);
  if (names.length > 3) return fields;
  const plane = triangle(names, change);
  return {
    root: el("div", { class: "triangled" }, plane.root, fields.root),
    show(now) {
      plane.show(now);
      fields.show(now);
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
