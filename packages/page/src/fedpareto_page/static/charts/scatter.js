// Points in a plane: what matters as SVG, the mass of them as pixels on one canvas behind it.

import { el, filled, isSame, put, svg } from "../dom.js";
import { extent } from "../maths.js";
import { mark, rgb } from "../palette.js";
import { clipped, onWidth } from "./figure.js";
import { linear, roomy, tickTexts, ticks } from "./scale.js";

const MOST_MARKS = 1500;
const CELL = 5;
const MARGIN = { left: 58, right: 14, top: 12, bottom: 44 };
const TIGHT = { left: 44, right: 6, top: 6, bottom: 30 };

/**
 * One plane. `options`: {label, height, tight, on: {brush(box, done), zoom(view), pick(group, i), hover(text), wish(x, y)}}
 * draw({x, y, groups, lines, bands, density, view, marks}):
 *   x, y: {title, maximise, reversed}; groups: {id, label, style, xs, ys, front: Uint8Array, chosen: Uint8Array|null,
 *   words(i), key(i), each(i): a style for each point, or none}; lines: {points, colour, dash, class}; bands: {outlines, colour}; density: [{xs, ys}].
 */
export class Scatter {
  constructor({ label, height = 420, tight = false, on = {} }) {
    this.on = on;
    this.height = height;
    this.margin = tight ? TIGHT : MARGIN;
    this.tight = tight;
    this.canvas = el("canvas", { aria: { hidden: "true" } });
    this.picture = svg("svg", { tabindex: "0", role: "application", aria: { label, roledescription: "chart" }, height });
    this.root = el("div", { class: "scatter" }, this.canvas, this.picture);
    this.layers = Object.fromEntries(
      ["frame", "bands", "lines", "marks", "brushed", "top"].map((name) => [name, svg("g", { class: name })]),
    );
    this.clip = clipped(this.picture, [this.layers.bands, this.layers.lines, this.layers.brushed]);
    this.picture.append(...Object.values(this.layers));
    this.places = [];
    this.at = null;
    this.unwatch = onWidth(this.root, (width) => {
      this.width = width;
      this.look(null);
      this.render();
    });
    this.listen();
  }

  draw(scene) {
    this.scene = scene;
    this.render();
  }

  destroy() {
    this.unwatch();
  }

  render() {
    if (!this.scene || !this.width) return;
    const { width, height, margin, scene } = this;
    filled(this.picture, { width, height });
    this.scales(scene, width, height, margin);
    this.frame(scene);
    this.drawBands(scene, this.framed);
    this.drawPoints(scene);
    this.top();
    const points = scene.groups.reduce((sum, one) => sum + one.xs.length, 0);
    this.root.dataset.points = points;
    this.root.dataset.view = [...this.x.domain, ...this.y.domain].map((one) => Number(one.toPrecision(6))).join();
  }

  scales({ x, y, view, groups, lines = [], marks = [] }, width, height, margin) {
    const ends = (j) => extent([
      ...groups.map((one) => endsOf(j ? one.ys : one.xs)),
      ...lines.map((one) => one.points.map((point) => point[j])),
      marks.map((one) => (j ? one.y : one.x)),
    ]);
    const domainX = view ? [view[0], view[2]] : roomy(ends(0));
    const domainY = view ? [view[1], view[3]] : roomy(ends(1));
    const sides = [margin.left, width - margin.right];
    const heights = [height - margin.bottom, margin.top];
    this.x = linear(domainX, x.reversed ? sides.reverse() : sides);
    this.y = linear(domainY, y.reversed ? heights.reverse() : heights);
  }

  frame({ x, y }) {
    const { margin, width, height, layers } = this;
    const key = [width, ...this.x.domain, ...this.y.domain, ...this.x.range, ...this.y.range, x.title, y.title].join();
    if (key === this.framed) return;
    this.framed = key;
    const [bottom, left] = [height - margin.bottom, margin.left];
    const field = { x: left, y: margin.top, width: Math.max(0, width - left - margin.right), height: bottom - margin.top };
    filled(this.clip, field);
    const parts = [svg("rect", { class: "field", ...field })];
    const xs = ticks(this.x.domain, Math.max(2, (width - left) / 90));
    const ys = ticks(this.y.domain, Math.max(2, (bottom - margin.top) / 55));
    tickTexts(xs).forEach((text, i) => {
      const at = this.x(xs[i]);
      parts.push(svg("line", { class: "grid", x1: at, x2: at, y1: margin.top, y2: bottom }));
      parts.push(svg("text", { x: at, y: bottom + 16, "text-anchor": "middle", text }));
    });
    tickTexts(ys).forEach((text, i) => {
      const at = this.y(ys[i]);
      parts.push(svg("line", { class: "grid", x1: left, x2: width - margin.right, y1: at, y2: at }));
      parts.push(svg("text", { x: left - 7, y: at + 4, "text-anchor": "end", text }));
    });
    if (!this.tight) {
      parts.push(svg("text", { class: "axis", x: (left + width - margin.right) / 2, y: height - 8, "text-anchor": "middle", text: titled(x, "→", "←") }));
      const middle = (margin.top + bottom) / 2;
      parts.push(svg("text", { class: "axis", transform: `translate(13 ${middle}) rotate(-90)`, "text-anchor": "middle", text: titled(y, "→", "←") }));
    }
    put(layers.frame, parts);
  }

  /** Made anew only if they are others: under a brush they are the same. */
  drawBands({ bands = [], lines = [] }, frame) {
    const drawn = [bands, lines, frame];
    if (isSame(this.banded, drawn)) return;
    this.banded = drawn;
    const at = ([x, y]) => `${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`;
    put(
      this.layers.bands,
      bands.map(({ outlines, colour, kind }) => svg("path", {
        class: kind ?? "band", fill: colour, "fill-rule": "evenodd", d: outlines.map((points) => `M${points.map(at).join("L")}Z`).join(""),
      })),
    );
    put(
      this.layers.lines,
      lines.map((one) => svg("path", {
        class: `line ${one.kind ?? ""}`, stroke: one.colour, "stroke-dasharray": one.dash || null, d: `M${one.points.map(at).join("L")}`,
      })),
    );
  }

  drawPoints({ groups, density = [] }) {
    const { margin, width, height } = this;
    const total = groups.reduce((sum, one) => sum + one.xs.length, 0);
    const isMass = total > MOST_MARKS;
    this.places = groups.map((group, k) => this.placed(group, this.places[k], isMass));
    put(this.layers.marks, this.places.map((one, k) => this.markPaths(one, groups[k])));
    this.canvas.hidden = !isMass && !density.length;
    if (this.canvas.hidden) return;
    filled(this.canvas, { width, height });
    const paint = this.canvas.getContext("2d", { willReadFrequently: true });
    if (this.image?.width !== width) this.image = paint.createImageData(width, height);
    const pixels = new Uint32Array(this.image.data.buffer).fill(0);
    if (density.length) this.cells(pixels, density, [margin.left, margin.top, width - margin.right, height - margin.bottom]);
    if (isMass) groups.forEach((group, k) => this.stamp(pixels, this.places[k].pixels, group, total > 20000 ? 1 : 2));
    paint.putImageData(this.image, 0, 0);
  }

  /** Where a group's points are, as pixels and as outlines of marks: computed once, however they are chosen then. */
  placed({ xs, ys, front, style, each }, known, isMass) {
    const key = [xs, ys, front, each, style.shape, this.framed, isMass];
    if (isSame(known?.key, key)) return known;
    const { margin, width, height } = this;
    const [right, bottom] = [width - margin.right, height - margin.bottom];
    const found = { key, marks: [], pixels: new Int32Array(isMass ? xs.length : 0), nodes: known?.nodes ?? {} };
    const [ax, bx] = slope(this.x);
    const [ay, by] = slope(this.y);
    for (let i = 0; i < xs.length; i++) {
      const [x, y] = [ax + bx * xs[i], ay + by * ys[i]];
      if (isMass) {
        const [column, row] = [(x + 0.5) | 0, (y + 0.5) | 0];
        const isInside = column > margin.left && column < right - 1 && row > margin.top && row < bottom - 1;
        found.pixels[i] = isInside ? row * width + column : 0;
      }
      if (isMass && !front[i]) continue;
      if (!(x >= margin.left - 1 && x <= right + 1 && y >= margin.top - 1 && y <= bottom + 1)) continue;
      found.marks.push([i, mark((each?.(i) ?? style).shape, x, y, this.tight ? 2.6 : front[i] ? 4.6 : 3.8)]);
    }
    return found;
  }

  /** Earlier rounds: the more points a cell has, the greyer it is. */
  cells(pixels, density, [left, top, right, bottom]) {
    const columns = Math.ceil((right - left) / CELL);
    const counts = new Uint32Array(columns * Math.ceil((bottom - top) / CELL));
    let most = 0;
    for (const { xs, ys } of density) {
      for (let i = 0; i < xs.length; i++) {
        const [x, y] = [this.x(xs[i]), this.y(ys[i])];
        if (!(x >= left && x < right && y >= top && y < bottom)) continue;
        const place = Math.floor((y - top) / CELL) * columns + Math.floor((x - left) / CELL);
        if (++counts[place] > most) most = counts[place];
      }
    }
    const [r, g, b] = rgb("var(--grey)");
    counts.forEach((count, place) => {
      if (!count) return;
      const alpha = Math.round(30 + 110 * Math.sqrt(count / most));
      const [x, y] = [left + (place % columns) * CELL, top + Math.floor(place / columns) * CELL];
      fill(pixels, this.width, x, y, Math.min(x + CELL - 1, right), Math.min(y + CELL - 1, bottom), (alpha << 24) | (b << 16) | (g << 8) | r);
    });
  }

  stamp(pixels, places, { style, chosen }, size) {
    const [r, g, b] = rgb(style.colour);
    const [pr, pg, pb] = rgb("var(--grey)");
    const strong = (255 << 24) | (b << 16) | (g << 8) | r;
    const pale = (90 << 24) | (pb << 16) | (pg << 8) | pr;
    const { width } = this;
    for (const passes of chosen ? [0, 1] : [null]) {
      const colour = passes === 0 ? pale : strong;
      for (let i = 0; i < places.length; i++) {
        const at = places[i];
        if (!at || (passes !== null && chosen[i] !== passes)) continue;
        pixels[at] = pixels[at + 1] = pixels[at + width] = pixels[at + width + 1] = colour;
        if (size > 1) pixels[at - 1] = pixels[at + width - 1] = pixels[at - width] = pixels[at - width + 1] = colour;
      }
    }
  }

  /** Paths with many marks each: those on the front, the others hollow, those that are not chosen pale. */
  markPaths({ marks, nodes }, { front, chosen, style, each, id }) {
    const kindOf = (i) => (front[i] ? "front" : "rest") + (chosen && !chosen[i] ? "Pale" : "");
    if (each) return marks.map(([i, d]) => svg("path", { class: `mark ${kindOf(i)}`, style: { "--own": each(i).colour }, d }));
    const paths = { restPale: "", frontPale: "", rest: "", front: "" };
    for (const [i, d] of marks) paths[kindOf(i)] += d;
    return Object.entries(paths).filter(([, d]) => d).map(([kind, d]) => {
      const node = (nodes[kind] ??= svg("path", { class: `mark ${kind}` }));
      // A path that is set again is laid out again, also where it is the same.
      const drawn = [d, style.colour, id].join();
      if (node.drawn !== drawn) filled(node, { style: { "--own": style.colour }, d, data: { run: id } });
      node.drawn = drawn;
      return node;
    });
  }

  // -- what is above the points ---------------------------------------------------------------------------------------

  top() {
    const { scene, layers } = this;
    const parts = [];
    for (const one of scene.marks ?? []) parts.push(this.cross(one));
    put(layers.brushed, scene.box ? [this.brush(scene.box)] : []);
    if (this.at) {
      const { group, i } = this.at;
      const one = scene.groups[group];
      if (one && i < one.xs.length) parts.push(svg("path", { class: "here", d: mark(one.style.shape, this.x(one.xs[i]), this.y(one.ys[i]), 8) }));
    }
    put(layers.top, parts);
  }

  brush([x0, y0, x1, y1]) {
    const [a, b, c, d] = [this.x(x0), this.x(x1), this.y(y0), this.y(y1)];
    return svg("rect", { class: "brush", x: Math.min(a, b), y: Math.min(c, d), width: Math.abs(b - a), height: Math.abs(d - c) });
  }

  cross({ x, y, kind, label, dx = 9, dy = -7 }) {
    const [a, b] = [this.x(x), this.y(y)];
    return svg("g", { class: kind ?? "cross" }, svg("path", { d: `M${a - 7} ${b}H${a + 7}M${a} ${b - 7}V${b + 7}` }), label && svg("text", { x: a + dx, y: b + dy, text: label }));
  }

  /** All points as single marks, for a file. */
  vector() {
    const copy = this.picture.cloneNode(true);
    const marks = copy.querySelector(".marks");
    marks.replaceChildren();
    for (const { xs, ys, front, style, each } of this.scene.groups) {
      for (let i = 0; i < xs.length; i++) {
        if (!Number.isFinite(xs[i]) || !Number.isFinite(ys[i])) continue;
        const { colour, shape } = each?.(i) ?? style;
        const d = mark(shape, this.x(xs[i]), this.y(ys[i]), front[i] ? 4.6 : 3.8);
        marks.append(svg("path", { class: `mark ${front[i] ? "front" : "rest"}`, style: { "--own": colour }, d }));
      }
    }
    return copy;
  }

  // -- pointer and keys -----------------------------------------------------------------------------------------------

  listen() {
    const { picture } = this;
    const place = (event) => {
      const box = picture.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    let from = null;
    let moved = false;
    picture.addEventListener("pointerdown", (event) => {
      if (event.button || !this.scene) return;
      from = place(event);
      moved = false;
      picture.setPointerCapture(event.pointerId);
    });
    picture.addEventListener("pointermove", (event) => {
      if (!this.scene) return;
      const now = place(event);
      if (from && this.on.brush) {
        moved ||= Math.hypot(now[0] - from[0], now[1] - from[1]) > 4;
        if (moved) this.on.brush(this.boxOf(from, now), false);
      } else if (!from) this.look(this.nearest(now, 14));
    });
    picture.addEventListener("pointerup", (event) => {
      if (!from) return;
      const now = place(event);
      if (moved) this.on.brush?.(this.boxOf(from, now), true);
      else this.click(now);
      from = null;
    });
    picture.addEventListener("pointerleave", () => !from && this.look(null));
    picture.addEventListener("wheel", (event) => {
      if (!this.on.zoom || !(event.ctrlKey || document.activeElement === picture)) return;
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, place(event));
    }, { passive: false });
    picture.addEventListener("keydown", (event) => this.key(event));
  }

  click(now) {
    if (this.on.wish?.(this.x.invert(now[0]), this.y.invert(now[1]))) return;
    const found = this.nearest(now, 14);
    if (found) this.on.pick?.(this.scene.groups[found.group], found.i);
    else this.on.brush?.(null, true);
  }

  boxOf([x0, y0], [x1, y1]) {
    const xs = [this.x.invert(x0), this.x.invert(x1)].sort((a, b) => a - b);
    const ys = [this.y.invert(y0), this.y.invert(y1)].sort((a, b) => a - b);
    return [xs[0], ys[0], xs[1], ys[1]];
  }

  nearest([px, py], reach) {
    let best = reach * reach;
    let found = null;
    this.scene.groups.forEach(({ xs, ys }, group) => {
      for (let i = 0; i < xs.length; i++) {
        const near = (this.x(xs[i]) - px) ** 2 + (this.y(ys[i]) - py) ** 2;
        if (near < best) (best = near), (found = { group, i });
      }
    });
    return found;
  }

  look(found) {
    if (!this.scene) return;
    if (this.at?.group === found?.group && this.at?.i === found?.i) return;
    this.at = found;
    this.top();
    this.on.hover?.(found ? this.scene.groups[found.group].words(found.i) : "", found && [this.x(this.scene.groups[found.group].xs[found.i]), this.y(this.scene.groups[found.group].ys[found.i])]);
  }

  zoom(factor, [px, py] = [this.width / 2, this.height / 2]) {
    const around = (scale, pixel) => {
      const centre = scale.invert(pixel);
      return scale.domain.map((end) => centre + (end - centre) * factor);
    };
    const [x, y] = [around(this.x, px), around(this.y, py)];
    this.on.zoom?.([x[0], y[0], x[1], y[1]]);
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };
    const { groups } = this.scene ?? { groups: [] };
    if (event.key in steps) this.walk(this.at?.group ?? 0, steps[event.key]);
    else if (event.key === "PageDown" || event.key === "PageUp") {
      const step = event.key === "PageDown" ? 1 : groups.length - 1;
      this.at = null;
      this.walk(((this.lastGroup ?? 0) + step) % Math.max(1, groups.length), 0);
    } else if (event.key === "Enter" && this.at) this.on.pick?.(groups[this.at.group], this.at.i);
    else if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? 1 / 1.3 : 1.3);
    else if (event.key === "0") this.on.zoom?.(null);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** To the next point along a series' front. */
  walk(group, step) {
    const one = this.scene.groups[group];
    if (!one) return;
    this.lastGroup = group;
    const order = Array.from(one.xs.keys()).filter((i) => one.front[i]).sort((a, b) => this.x(one.xs[a]) - this.x(one.xs[b]));
    if (!order.length) return;
    const place = this.at?.group === group ? order.indexOf(this.at.i) : -1;
    const next = place < 0 ? 0 : Math.min(order.length - 1, Math.max(0, place + step));
    this.look({ group, i: order[next] });
    this.on.read?.(`${one.label}: ${one.words(order[next])}`);
  }
}

const found = new WeakMap();

/** The ends of an array, computed once. */
function endsOf(array) {
  if (!found.has(array)) found.set(array, extent([array]));
  return found.get(array);
}

/** A linear scale as [a, b] of a + b · value. */
function slope(scale) {
  const at = scale(0);
  return [at, scale(1) - at];
}

function titled({ title, reversed, maximise }, forward, backward) {
  if (maximise === undefined) return title;
  return maximise === !reversed ? `${title} (better ${forward})` : `${backward} better (${title})`;
}

function fill(pixels, width, x0, y0, x1, y1, colour) {
  for (let y = Math.max(0, y0 | 0); y < y1; y++) pixels.fill(colour, y * width + (x0 | 0), y * width + (x1 | 0));
}
