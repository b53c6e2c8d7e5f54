// What pictures of clients share: an SVG in three layers that is one tab stop, redrawn when its width changes, and a tip.

import { el, put, svg } from "../dom.js";
import { ofPreference } from "../palette.js";
import { onWidth } from "./figure.js";
import { tip } from "./tip.js";

export class Picture {
  /** `on`: {pick(client or thread), read(text)}; subclasses have render(), key(event) and look(event or null). */
  constructor({ label, on }) {
    this.on = on;
    this.picture = svg("svg", { tabindex: "0", role: "application", aria: { label, roledescription: "chart" } });
    this.layers = [0, 1, 2].map(() => svg("g"));
    this.picture.append(...this.layers);
    this.tip = tip();
    this.root = el("div", { class: "picture" }, this.picture, this.tip.root);
    this.destroy = onWidth(this.root, (width) => {
      this.width = width;
      if (this.scene) this.render();
    });
    const listen = (name, f) => this.picture.addEventListener(name, (event) => this.scene && f(event));
    listen("pointermove", (event) => this.look(event));
    listen("pointerleave", () => this.look(null));
    listen("click", (event) => this.click(event));
    listen("keydown", (event) => this.key(event) && event.preventDefault());
  }

  /** Where the pointer is. */
  place({ clientX, clientY }) {
    const box = this.picture.getBoundingClientRect();
    return [clientX - box.left, clientY - box.top];
  }
}

/** One line for each client, which can be pointed at, walked along by keys and selected. */
export class Threads extends Picture {
  at = -1;

  /**
   * scene(width) gives {height, frame: [nodes], threads: [{client, colour, d, thick, dots, whisker, words, at: [x, y]}]};
   * it is asked again only for another version. `isChosen(thread)`; `top(found)`: what lies above.
   */
  draw(scene, version, isChosen, top = () => []) {
    Object.assign(this, { scene, isChosen, topOf: top });
    if (version === this.version) return this.refresh();
    this.version = version;
    this.render();
  }

  render() {
    if (!this.width) return;
    this.found = this.scene(this.width);
    const { height, frame, threads } = this.found;
    this.picture.setAttribute("width", this.width);
    this.picture.setAttribute("height", height);
    put(this.layers[0], frame);
    this.groups = threads.map(({ client, colour, d, thick = 2, dots, whisker }, i) => svg(
      "g",
      { class: "thread", data: { client, i }, style: { "--own": colour, "--thick": thick } },
      Object.entries({ reach: d, own: d, whisker, dots }).map(([name, of]) => of && svg("path", { class: name, d: of })),
    ));
    put(this.layers[1], this.groups);
    this.refresh();
  }

  /** Who is chosen, who is pointed at, what lies above. */
  refresh() {
    if (!this.found) return;
    const chosen = this.found.threads.map(this.isChosen);
    const any = chosen.some(Boolean);
    this.groups.forEach((group, i) => {
      group.classList.toggle("pale", any && !chosen[i]);
      group.classList.toggle("lifted", i === this.at);
    });
    put(this.layers[2], this.topOf(this.found));
  }

  /** Without what only a pointer needs, for a file. */
  vector() {
    const copy = this.picture.cloneNode(true);
    for (const path of copy.querySelectorAll(".reach")) path.remove();
    return copy;
  }

  under(event) {
    return Number(event?.target.closest(".thread")?.dataset.i ?? -1);
  }

  look(event, i = this.under(event)) {
    if (i === this.at) return;
    this.at = i;
    const one = this.found.threads[i];
    this.tip.show(one?.words ?? "", one?.at);
    this.refresh();
  }

  click(event) {
    if (this.on.click) this.on.click(this.place(event)[0], this.found);
    else if (this.under(event) >= 0) this.on.pick(this.found.threads[this.under(event)]);
  }

  key({ key }) {
    const step = { ArrowDown: 1, ArrowUp: -1, ...(!this.on.click && { ArrowRight: 1, ArrowLeft: -1 }) }[key];
    const { threads } = this.found;
    if (step && threads.length) {
      this.look(null, Math.min(threads.length - 1, Math.max(0, this.at + step)));
      this.on.read(threads[this.at].words.replaceAll("\n", ", "));
    } else if (key === "Enter" && threads[this.at]) this.on.pick(threads[this.at]);
    else return false;
    return true;
  }
}

/** What the colours of preferences mean. */
export function preferenceKey(names) {
  const square = (preference) => el("span", { class: "square", style: { "--own": ofPreference(preference) } });
  const wants = (name) => el("span", { text: `wants ${name}` });
  const parts = names.length === 2
    ? el("li", {}, wants(names[1]), [0, 0.25, 0.5, 0.75, 1].map((w) => square([w, 1 - w])), wants(names[0]))
    : names.map((name, j) => el("li", {}, square(names.map((_, k) => Number(k === j))), wants(name)));
  return el("ul", { class: "legend" }, parts);
}
