// Lines over one axis: a path for each series that holds only the least and the largest value of each column of pixels.

import { el, filled, put, svg } from "../dom.js";
import { clipped, onWidth } from "./figure.js";
import { linear, roomy, steady, tickTexts, ticks } from "./scale.js";

/** Milliseconds that a curve waits which has nothing new but within its last column of pixels. */
const SELDOM = 5000;
/** Columns of pixels after which what is drawn of a long curve becomes part of the path that stays. */
const BLOCK = 32;
const MARGIN = { left: 58, right: 20, top: 10, bottom: 34 };

/**
 * One chart. draw({x: {title, domain}, y: {title, domain}, series, at, marks}): series: {id, label, xs, ys, colour, dash,
 * kind, stepped, version, lasting, band: {low, high}|null, words(i)}; of series with the same `lasting` one after the other,
 * all points but the last are the same. at: where the scrubber is; marks: [{x, label}].
 */
export class Lines {
  constructor({ label, height = 200, on = {} }) {
    this.on = on;
    this.height = height;
    this.picture = svg("svg", { tabindex: "0", role: "application", aria: { label, roledescription: "chart" }, height });
    this.root = el("div", { class: "lines" }, this.picture);
    this.layers = Object.fromEntries(
      ["frame", "bands", "curves", "top"].map((name) => [name, svg("g", { class: name })]),
    );
    this.picture.append(...Object.values(this.layers));
    this.clip = clipped(this.picture, [this.layers.bands, this.layers.curves]);
    this.paths = new Map();
    this.unwatch = onWidth(this.root, (width) => {
      this.width = width;
      if (this.visible) this.render();
    });
    // What is below the window is drawn when it comes into view.
    this.watched = new IntersectionObserver(([{ isIntersecting }]) => {
      this.visible = isIntersecting;
      if (isIntersecting) this.render();
    }, { rootMargin: "200px" });
    this.watched.observe(this.root);
    this.listen();
  }

  draw(scene) {
    this.scene = scene;
    if (this.visible) this.render();
  }

  destroy() {
    clearTimeout(this.due);
    this.unwatch();
    this.watched.disconnect();
  }

  render() {
    const { scene, width, height } = this;
    if (!scene || !width) return;
    this.x = linear(scene.x.domain, [MARGIN.left, width - MARGIN.right]);
    this.y = linear(steady(roomy(scene.y.domain)), [height - MARGIN.bottom, MARGIN.top]);
    this.frame(scene);
    put(this.layers.bands, scene.series.filter((one) => one.band).map((one) => this.band(one)));
    this.curves(scene);
    this.top(scene);
    this.root.dataset.series = scene.series.length;
    this.root.dataset.points = scene.series.reduce((sum, one) => sum + one.xs.length, 0);
  }

  frame({ x, y }) {
    const { width, height } = this;
    const key = [width, height, ...this.x.domain, ...this.y.domain, x.title, y.title].join();
    if (key === this.framed) return;
    this.framed = key;
    const [bottom, left, right] = [height - MARGIN.bottom, MARGIN.left, width - MARGIN.right];
    const field = { x: left, y: MARGIN.top, width: Math.max(0, right - left), height: bottom - MARGIN.top };
    filled(this.picture, { width, height });
    filled(this.clip, field);
    const parts = [svg("rect", { class: "field", ...field })];
    const xs = ticks(this.x.domain, Math.max(2, (right - left) / 80)).filter((one) => !x.whole || Number.isInteger(one));
    tickTexts(xs).forEach((text, i) => {
      parts.push(svg("text", { x: this.x(xs[i]), y: bottom + 15, "text-anchor": "middle", text }));
    });
    const ys = ticks(this.y.domain, Math.max(2, (bottom - MARGIN.top) / 45));
    tickTexts(ys).forEach((text, i) => {
      const at = this.y(ys[i]);
      parts.push(svg("line", { class: "grid", x1: left, x2: right, y1: at, y2: at }));
      parts.push(svg("text", { x: left - 7, y: at + 4, "text-anchor": "end", text }));
    });
    parts.push(svg("text", { class: "axis", x: (left + right) / 2, y: height - 4, "text-anchor": "middle", text: x.title }));
    put(this.layers.frame, parts);
  }

  band({ xs, band, colour }) {
    const up = [];
    const down = [];
    for (let i = 0; i < xs.length; i++) {
      if (!Number.isFinite(band.low[i]) || !Number.isFinite(band.high[i])) continue;
      const x = this.x(xs[i]).toFixed(1);
      up.push(`${x} ${this.y(band.high[i]).toFixed(1)}`);
      down.push(`${x} ${this.y(band.low[i]).toFixed(1)}`);
    }
    return svg("path", { class: "band", fill: colour, d: up.length ? `M${up.join("L")}L${down.reverse().join("L")}Z` : "" });
  }

  curves({ series }) {
    const view = [this.width, this.height, ...this.x.domain, ...this.y.domain].join();
    const seen = new Set();
    for (const one of series) {
      const name = `${one.id} ${one.kind ?? ""}`;
      seen.add(name);
      let path = this.paths.get(name);
      if (!path) this.paths.set(name, (path = { nodes: [0, 1].map(() => this.layers.curves.appendChild(svg("path"))) }));
      const look = { class: `curve ${one.kind ?? ""}`, stroke: one.colour, "stroke-dasharray": one.dash || "none" };
      const style = Object.values(look).join();
      if (path.style !== style) for (const node of path.nodes) filled(node, { ...look, data: { run: one.id } });
      path.style = style;
      if (path.version === one.version && path.view === view && one.version !== undefined) continue;
      const goesOn = path.view === view && one.lasting && path.lasting === one.lasting;
      Object.assign(path, { one, version: one.version, view, lasting: one.lasting, kept: goesOn ? path.kept : undefined });
      if (!this.isWithinPixel(path) || performance.now() > path.at + SELDOM) this.written(path);
    }
    // In a frame with what else is new, or when nothing follows.
    clearTimeout(this.due);
    this.due = setTimeout(() => this.write(), SELDOM);
    for (const [name, { nodes }] of this.paths) if (!seen.has(name)) nodes.forEach((node) => node.remove()), this.paths.delete(name);
  }

  /** Whether a curve has nothing new but within its last column of pixels, which can wait. */
  isWithinPixel({ one: { xs }, kept }) {
    return kept?.dense && kept.next < xs.length && Math.round(this.x(xs[kept.next])) === Math.round(this.x(xs[xs.length - 1]));
  }

  /** What has changed within the last column of pixels only: texts of paths are what a browser collects last. */
  write() {
    clearTimeout(this.due);
    for (const path of this.paths.values()) this.written(path);
  }

  /** Writes those texts of a path that are not in the page yet. */
  written(path) {
    if (path.drawn === path.one) return;
    const { texts, kept } = this.curve(path.one, path.kept);
    path.nodes.forEach((node, k) => path.texts?.[k] !== texts[k] && node.setAttribute("d", texts[k]));
    Object.assign(path, { drawn: path.one, at: performance.now(), texts, kept });
  }

  /**
   * The two paths of a series, the one that stays and the rest of it, and what is kept for when points are added: all
   * before the last column of pixels. A path of an hour that is written anew whenever it grows leaves so much behind that
   * the browser's memory grows.
   */
  curve({ xs, ys, stepped }, kept) {
    const [from, to] = this.x.range;
    const dense = xs.length > 0.75 * (to - from);
    if (kept?.dense !== dense) kept = { dense, stays: "", rest: "", block: 0, pen: "M", known: 0, next: 0 };
    const tenth = (value) => Math.round(value * 10) / 10;
    let { stays, block, pen, known } = kept;
    let parts = [kept.rest];
    let sure = { count: 1, pen, known, next: kept.next };
    const point = (x, y) => {
      parts.push(stepped && pen === "L" ? `H${tenth(x)}V${tenth(y)}` : `${pen}${tenth(x)} ${tenth(y)}`);
      pen = "L";
    };
    const columned = (x, first, low, high, last) => {
      if (Number.isNaN(x)) return;
      point(x, first);
      if (low !== high) parts.push(`V${tenth(low)}V${tenth(high)}V${tenth(last)}`);
    };
    let [column, first, low, high, last] = [NaN, 0, 0, 0, 0];
    for (let i = kept.next; i < xs.length; i++) {
      if (!Number.isFinite(ys[i]) || !Number.isFinite(xs[i])) {
        columned(column, first, low, high, last);
        column = NaN;
        pen = "M";
        continue;
      }
      const x = this.x(xs[i]);
      const y = this.y(ys[i]);
      const place = dense ? Math.round(x) : x;
      if (column !== place || !dense) {
        columned(column, first, low, high, last);
        const reached = dense ? Math.floor(place / BLOCK) : 0;
        if (reached !== block) {
          stays += parts.join("");
          parts = pen === "L" ? [`M${tenth(column)} ${tenth(last)}`] : [];
          block = reached;
        }
        sure = { count: parts.length, pen, known, next: i };
        column = place;
        first = low = high = y;
      } else if (y < low) low = y;
      else if (y > high) high = y;
      last = y;
      known++;
    }
    columned(column, first, low, high, last);
    const rest = parts.slice(0, sure.count).join("");
    // A line through one point is invisible.
    const end = parts.slice(sure.count).join("") + (known === 1 ? "h.1" : "");
    return { texts: [stays, rest + end], kept: { dense, stays, rest, block, pen: sure.pen, known: sure.known, next: sure.next } };
  }

  top({ at, marks = [] }) {
    const parts = [];
    const [bottom, top] = [this.height - MARGIN.bottom, MARGIN.top];
    for (const { x, kind } of marks) parts.push(svg("line", { class: `note ${kind ?? ""}`, x1: this.x(x), x2: this.x(x), y1: top, y2: kind ? bottom : top + 8 }));
    if (at !== null && at !== undefined) parts.push(svg("line", { class: "scrub", x1: this.x(at), x2: this.x(at), y1: top, y2: bottom }));
    if (this.here) {
      const { one, i } = this.here;
      if (i < one.xs.length) parts.push(svg("circle", { class: "here", cx: this.x(one.xs[i]), cy: this.y(one.ys[i]), r: 5 }));
    }
    put(this.layers.top, parts);
  }

  vector() {
    this.write();
    return this.picture;
  }

  // -- pointer and keys -----------------------------------------------------------------------------------------------

  listen() {
    const place = (event) => event.clientX - this.picture.getBoundingClientRect().left;
    this.picture.addEventListener("pointermove", (event) => {
      if (!this.scene || !this.x) return;
      const y = event.clientY - this.picture.getBoundingClientRect().top;
      this.look(this.nearest(place(event), y));
    });
    this.picture.addEventListener("pointerleave", () => this.look(null));
    this.picture.addEventListener("click", (event) => this.x && this.on.place?.(this.x.invert(place(event))));
    this.picture.addEventListener("keydown", (event) => this.key(event));
  }

  nearest(px, py) {
    let best = 30 * 30;
    let found = null;
    for (const one of this.scene.series) {
      const i = placeOf(one.xs, this.x.invert(px));
      for (const near of [i - 1, i]) {
        if (!Number.isFinite(one.ys[near])) continue;
        const far = (this.x(one.xs[near]) - px) ** 2 + (this.y(one.ys[near]) - py) ** 2;
        if (far < best) (best = far), (found = { one, i: near });
      }
    }
    return found;
  }

  look(found) {
    if (this.here?.one === found?.one && this.here?.i === found?.i) return;
    this.here = found;
    this.top(this.scene);
    this.on.hover?.(found ? this.words(found) : "", found && [this.x(found.one.xs[found.i]), this.y(found.one.ys[found.i])]);
  }

  words({ one, i }) {
    return one.words ? one.words(i) : `${one.label}: ${one.ys[i]}`;
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    const { series } = this.scene ?? { series: [] };
    if (!series.length) return;
    let k = Math.max(0, series.findIndex((one) => one.id === this.here?.one.id && one.kind === this.here?.one.kind));
    if (event.key === "PageDown" || event.key === "PageUp") k = (k + (event.key === "PageDown" ? 1 : series.length - 1)) % series.length;
    else if (event.key === "Enter" && this.here) return this.on.place?.(this.here.one.xs[this.here.i]);
    else if (!(event.key in steps)) return;
    event.preventDefault();
    const one = series[k];
    const start = this.here ? Math.min(this.here.i, one.xs.length - 1) : event.key === "ArrowLeft" ? one.xs.length : -1;
    const i = Math.min(one.xs.length - 1, Math.max(0, start + (steps[event.key] ?? 0)));
    this.look({ one, i });
    this.on.read?.(this.words({ one, i }));
  }
}

/** The first place in ascending numbers that is not below x. */
function placeOf(xs, x) {
  let [low, high] = [0, xs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return Math.min(low, xs.length - 1);
}
