// Parallel coordinates: a line for each model, an axis for each goal with better on top, a brush on each axis.

import { el, filled, put, svg } from "../dom.js";
import { extent } from "../maths.js";
import { number } from "../words.js";
import { onWidth } from "./figure.js";
import { linear, roomy } from "./scale.js";

const MOST = 2000;
const MARGIN = { side: 48, top: 34, bottom: 22 };

/** draw({names, maximise, groups: [{one, style, chosen}], ranges: Map(j → [low, high])}). */
export class Parallel {
  constructor({ height = 300, on = {} }) {
    Object.assign(this, { height, on });
    this.picture = svg("svg", { height, role: "group", aria: { label: "Goals side by side; each axis can be brushed" } });
    this.layers = Object.fromEntries(["lines", "axes"].map((name) => [name, svg("g", { class: name })]));
    this.picture.append(...Object.values(this.layers));
    this.root = el("div", { class: "lines" }, this.picture);
    this.unwatch = onWidth(this.root, (width) => {
      this.width = width;
      this.render();
    });
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
    const { names, maximise, groups, ranges } = this.scene;
    filled(this.picture, { width: this.width });
    const ends = [this.height - MARGIN.bottom, MARGIN.top];
    this.ys = names.map((_, j) => linear(roomy(extent(groups.map(({ one }) => one.columns[j])), 0.02), maximise[j] ? ends : [...ends].reverse()));
    this.x = (j) => MARGIN.side + (j / Math.max(1, names.length - 1)) * (this.width - 2 * MARGIN.side);
    put(this.layers.lines, groups.flatMap((group) => this.paths(group)));
    put(this.layers.axes, names.map((name, j) => this.axis(name, j, ranges.get(j))));
    this.root.dataset.points = groups.reduce((sum, { one }) => sum + one.count, 0);
  }

  paths({ one, style, chosen }) {
    const parts = { pale: "", own: "" };
    const every = Math.ceil(one.count / MOST);
    for (let i = 0; i < one.count; i += every) {
      const d = one.columns.map((column, j) => `${j ? "L" : "M"}${this.x(j).toFixed(1)} ${this.ys[j](column[i]).toFixed(1)}`).join("");
      parts[chosen && !chosen[i] ? "pale" : "own"] += d;
    }
    return [
      parts.pale && svg("path", { class: "curve pale", d: parts.pale }),
      parts.own && svg("path", { class: "curve", stroke: style.colour, "stroke-dasharray": style.dash || null, d: parts.own }),
    ].filter(Boolean);
  }

  axis(name, j, range) {
    const x = this.x(j);
    const scale = this.ys[j];
    const [top, bottom] = [MARGIN.top, this.height - MARGIN.bottom];
    const domain = [...scale.domain].sort((a, b) => scale(a) - scale(b));
    const bar = svg("rect", { class: "axis-bar", x: x - 12, y: top, width: 24, height: bottom - top, tabindex: "0", role: "slider",
      aria: { label: `${name}: keep only what is at least this good`, valuemin: Math.min(...domain), valuemax: Math.max(...domain), valuenow: range ? range[0] : Math.min(...domain), valuetext: range ? `${number(range[0])} to ${number(range[1])}` : "all" } });
    this.brush(bar, j, scale);
    return svg("g", {},
      svg("line", { class: "axis-line", x1: x, x2: x, y1: top, y2: bottom }),
      range && svg("rect", { class: "brush", x: x - 8, width: 16, y: Math.min(scale(range[0]), scale(range[1])), height: Math.abs(scale(range[1]) - scale(range[0])) }),
      bar,
      svg("text", { class: "axis", x, y: 14, "text-anchor": "middle", text: name }),
      svg("text", { x, y: top - 6, "text-anchor": "middle", text: number(domain[0]) }),
      svg("text", { x, y: bottom + 14, "text-anchor": "middle", text: number(domain[1]) }));
  }

  brush(bar, j, scale) {
    let from = null;
    const place = (event) => scale.invert(event.clientY - this.picture.getBoundingClientRect().top);
    const ends = (event) => [from, place(event)].sort((a, b) => a - b);
    bar.addEventListener("pointerdown", (event) => {
      from = place(event);
      const move = (next) => this.on.brush?.(j, ends(next), false);
      const up = (last) => {
        removeEventListener("pointermove", move);
        const found = ends(last);
        const wide = Math.abs(scale(found[0]) - scale(found[1])) > 4;
        this.on.brush?.(j, wide ? found : null, true);
      };
      addEventListener("pointermove", move);
      addEventListener("pointerup", up, { once: true });
      event.preventDefault();
    });
    bar.addEventListener("keydown", (event) => {
      const step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const better = this.scene.maximise[j];
      const [low, high] = scale.domain;
      const now = this.scene.ranges.get(j) ?? [low, high];
      const move = (step * (high - low)) / 20;
      const next = better ? [Math.max(low, now[0] + move), high] : [low, Math.min(high, now[1] - move)];
      this.on.brush?.(j, next[0] <= low && next[1] >= high ? null : next, true);
      this.on.read?.(`${this.scene.names[j]} from ${number(next[0])} to ${number(next[1])}`);
    });
  }
}
