// A square of numbers from −1 to 1: each cell a pixel of a canvas that is stretched, names and frames above it as SVG.

import { el, filled, put, svg } from "../dom.js";
import { rgb } from "../palette.js";
import { number } from "../words.js";
import { Picture } from "./picture.js";

const MARGIN = 34;
const LARGEST = 520;
const KEY = 34;
/** One signed byte a cell: 127 is 1; this one is "not known". */
export const UNKNOWN = -128;

/** The number in a cell. */
export function known(byte) {
  return byte === UNKNOWN ? NaN : byte / 127;
}

/** From −128 to 127 [r, g, b]: paper in the middle, one colour for each sign. */
function shades() {
  const [paper, more, less, grey] = ["--paper", "--c0", "--c1", "--grey"].map((name) => rgb(`var(${name})`));
  return Array.from({ length: 256 }, (_, i) => {
    const end = i < 128 ? less : more;
    return i ? paper.map((one, c) => Math.round(one + (Math.abs(i - 128) / 127) * (end[c] - one))) : grey;
  });
}

export class Heat extends Picture {
  cell = null;
  canvas = el("canvas", { aria: { hidden: "true" } });

  /** ids in the order of rows; at(i, j): a byte; colours: beside the names; isSame(i, j): belong together; isChosen(id). */
  draw(scene) {
    this.scene = scene;
    this.render();
  }

  render() {
    const { scene, width } = this;
    if (!width) return;
    const n = scene.ids.length;
    const side = Math.max(40, Math.min(width, LARGEST) - MARGIN - 4);
    this.size = side / n;
    this.shades ??= shades();
    const key = [side, scene.ids, scene.ids.filter(scene.isChosen)].join();
    if (key !== this.made) {
      this.made = key;
      this.root.prepend(filled(this.canvas, { width: n, height: n, style: { width: `${side}px`, height: `${side}px` } }));
      filled(this.picture, { width: side + MARGIN + 4, height: side + MARGIN + KEY });
      this.frame(side);
    }
    this.paint(n);
    this.look(null, this.cell);
    Object.assign(this.root.dataset, { cells: n * n, order: scene.ids.join() });
  }

  paint(n) {
    const { scene: { at, isSame }, shades, size } = this;
    const paint = this.canvas.getContext("2d");
    const image = paint.createImageData(n, n);
    const same = (i, j) => Math.min(i, j) >= 0 && Math.max(i, j) < n && isSame(i, j);
    const px = (i) => (MARGIN + i * size).toFixed(1);
    let frames = "";
    for (let i = 0; i < n; i++) {
      for (let j = 0; j <= n; j++) {
        if (j < n) image.data.set([...shades[at(i, j) + 128], 255], 4 * (i * n + j));
        if (same(i, j) !== same(i, j - 1)) frames += `M${px(j)} ${px(i)}V${px(i + 1)}`;
        if (same(j, i) !== same(j - 1, i)) frames += `M${px(i)} ${px(j)}H${px(i + 1)}`;
      }
    }
    paint.putImageData(image, 0, 0);
    put(this.layers[1], svg("path", { class: "together", "stroke-width": Math.min(1.6, size / 6), d: frames }));
  }

  frame(side) {
    const { scene: { ids, colours, isChosen }, size, shades } = this;
    const every = Math.ceil(18 / size);
    const parts = [svg("rect", { class: "field", x: MARGIN, y: MARGIN, width: side, height: side })];
    ids.forEach((id, i) => {
      const at = MARGIN + i * size;
      const own = { class: "strip", style: { "--own": colours[i] } };
      parts.push(svg("rect", { ...own, x: MARGIN - 8, y: at, width: 6, height: size }), svg("rect", { ...own, x: at, y: MARGIN - 8, width: size, height: 6 }));
      if (i % every && !isChosen(id)) return;
      const text = { text: id, class: isChosen(id) ? "strong" : null };
      parts.push(svg("text", { ...text, x: MARGIN - 11, y: at + size / 2 + 4, "text-anchor": "end" }), svg("text", { ...text, x: at + size / 2, y: MARGIN - 12, "text-anchor": "middle" }));
    });
    ["−1", "−0.5", "0", "0.5", "1"].forEach((text, k) => {
      const [x, y] = [MARGIN + k * 34, MARGIN + side + 8];
      parts.push(svg("rect", { class: "shade", x, y, width: 34, height: 9, fill: `rgb(${shades[Math.round(1 + k * 63.5)]})` }));
      parts.push(svg("text", { x: x + 17, y: y + 22, "text-anchor": "middle", text }));
    });
    put(this.layers[0], parts);
  }

  top() {
    const { cell, size } = this;
    put(this.layers[2], cell && svg("rect", { class: "here", x: MARGIN + cell[1] * size, y: MARGIN + cell[0] * size, width: size, height: size }));
  }

  /** With every cell as a rectangle, for a file. */
  vector() {
    const copy = this.picture.cloneNode(true);
    const { scene: { ids, at }, size, shades } = this;
    const cell = (i, j) => svg("rect", { x: MARGIN + j * size, y: MARGIN + i * size, width: size, height: size, fill: `rgb(${shades[at(i, j) + 128]})` });
    copy.prepend(svg("g", {}, ids.map((_, i) => ids.map((_, j) => cell(i, j)))));
    return copy;
  }

  get words() {
    const [i, j] = this.cell;
    const { ids, at } = this.scene;
    return `clients ${ids[i]} and ${ids[j]}: ${number(known(at(i, j)), 2)}`;
  }

  look(event, cell = event && this.cellAt(event)) {
    this.cell = cell;
    this.tip.show(cell ? this.words : "", cell && [MARGIN + (cell[1] + 1) * this.size, MARGIN + cell[0] * this.size]);
    this.top();
  }

  cellAt(event) {
    const cell = this.place(event).map((at) => Math.floor((at - MARGIN) / this.size)).reverse();
    return cell.every((at) => at >= 0 && at < this.scene.ids.length) ? cell : null;
  }

  click(event) {
    const cell = this.cellAt(event);
    if (cell) this.on.pick(this.scene.ids[cell[0]]);
  }

  key({ key }) {
    const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[key];
    const last = this.scene.ids.length - 1;
    if (step) {
      this.look(null, (this.cell ?? [0, -1]).map((at, k) => Math.min(last, Math.max(0, at + step[k]))));
      this.on.read(this.words);
    } else if (key === "Enter" && this.cell) this.on.pick(this.scene.ids[this.cell[0]]);
    else return false;
    return true;
  }
}
