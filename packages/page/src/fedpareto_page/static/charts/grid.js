// What became of each client in each round: a canvas with a pixel a cell, names and replies around it as SVG.

import { choice, el, filled, put, svg } from "../dom.js";
import { rgb } from "../palette.js";
import { json } from "../source.js";
import { bytes, counted, listed, number } from "../words.js";
import { figure } from "./figure.js";
import { Picture } from "./picture.js";
import { linear, ticks } from "./scale.js";

const MARGIN = 34;
/** Of the curve of replies below. */
const FOOT = 74;
/** By state, as the server numbers them. */
const COLOURS = ["--rule", "--c5", "--c1", "--bad", "--ink", "--c3"];

class Grid extends Picture {
  cell = null;
  canvas = el("canvas", { aria: { hidden: "true" } });

  /** {clients, rounds, attackers, quorum, state, words(i, k), isChosen(client)}; state[k * clients + i] is of client i in round k. */
  draw(scene) {
    this.scene = scene;
    this.render();
  }

  render() {
    const { scene, width } = this;
    if (!width || !scene.rounds.length) return;
    const [n, k] = [scene.clients.length, scene.rounds.length];
    this.across = Math.min(18, (width - MARGIN - 6) / k);
    this.down = Math.max(2, Math.min(18, 420 / n));
    const [wide, high] = [this.across * k, this.down * n];
    this.root.prepend(filled(this.canvas, { width: k, height: n, style: { width: `${wide}px`, height: `${high}px` } }));
    filled(this.picture, { width: Math.max(wide + MARGIN + 6, 200), height: high + MARGIN + FOOT + 34 });
    this.paint(n, k);
    this.frame(wide, high);
    this.look(null, this.cell);
  }

  paint(n, k) {
    const paint = this.canvas.getContext("2d");
    const image = paint.createImageData(k, n);
    const colours = COLOURS.map((name) => rgb(`var(${name})`));
    for (let i = 0; i < n; i++) {
      for (let r = 0; r < k; r++) image.data.set([...colours[this.scene.state[r * n + i]], 255], 4 * (i * k + r));
    }
    paint.putImageData(image, 0, 0);
  }

  frame(wide, high) {
    const { scene: { clients, rounds, attackers, quorum, state, isChosen }, across, down } = this;
    const [n, bottom] = [clients.length, MARGIN + high];
    const every = Math.ceil(14 / down);
    const parts = [svg("rect", { class: "field", x: MARGIN, y: MARGIN, width: wide, height: high })];
    clients.forEach((client, i) => {
      const y = MARGIN + i * down;
      const attacks = attackers.has(client);
      if (attacks) parts.push(svg("rect", { class: "strip", style: { "--own": "var(--bad)" }, x: MARGIN - 8, y, width: 6, height: Math.max(1, down - 1) }));
      if (i % every && !attacks && !isChosen(client)) return;
      parts.push(svg("text", { x: MARGIN - 11, y: y + down / 2 + 4, "text-anchor": "end", text: client, class: isChosen(client) ? "strong" : null }));
    });
    const x = (r) => MARGIN + (r + 0.5) * across;
    const last = rounds.length - 1;
    for (const r of ticks([0, last], Math.max(1, wide / 60)).filter(Number.isInteger)) parts.push(svg("text", { x: x(r), y: MARGIN - 8, "text-anchor": "middle", text: rounds[r] }));
    parts.push(svg("text", { class: "axis", x: MARGIN, y: 12, text: "rounds" }));
    const y = linear([0, n], [bottom + FOOT, bottom + 14]);
    const replies = rounds.map((_, r) => repliesOf(state, n, r));
    parts.push(svg("path", { class: "curve", style: { stroke: "var(--c5)" }, d: `M${replies.map((count, r) => `${x(r).toFixed(1)} ${y(count).toFixed(1)}`).join("L")}` }));
    for (const count of [0, n]) parts.push(svg("text", { x: MARGIN - 6, y: y(count) + 4, "text-anchor": "end", text: count }));
    if (quorum) parts.push(svg("path", { class: "scrub", d: `M${MARGIN} ${y(quorum)}H${MARGIN + wide}` }), svg("text", { x: MARGIN + 4, y: y(quorum) - 4, text: `quorum ${quorum}` }));
    parts.push(svg("text", { class: "axis", x: MARGIN, y: bottom + FOOT + 22, text: "replies in each round" }));
    put(this.layers[0], parts);
  }

  /** With every cell as a rectangle, for a file. */
  vector() {
    const copy = this.picture.cloneNode(true);
    const { scene: { clients, rounds, state }, across, down } = this;
    const colours = COLOURS.map((name) => `rgb(${rgb(`var(${name})`)})`);
    const cell = (i, r) => svg("rect", { x: MARGIN + r * across, y: MARGIN + i * down, width: across, height: down, fill: colours[state[r * clients.length + i]] });
    copy.prepend(svg("g", {}, clients.map((_, i) => rounds.map((_, r) => cell(i, r)))));
    return copy;
  }

  look(event, cell = event && this.cellAt(event)) {
    this.cell = cell && cell[0] < this.scene.clients.length && cell[1] < this.scene.rounds.length ? cell : null;
    const [i, r] = this.cell ?? [];
    this.tip.show(this.cell ? this.scene.words(i, r) : "", this.cell && [MARGIN + (r + 1) * this.across, MARGIN + i * this.down]);
    put(this.layers[2], this.cell && svg("rect", { class: "here", x: MARGIN + r * this.across, y: MARGIN + i * this.down, width: this.across, height: this.down }));
  }

  cellAt(event) {
    const [x, y] = this.place(event);
    const cell = [Math.floor((y - MARGIN) / this.down), Math.floor((x - MARGIN) / this.across)];
    return cell.every((at) => at >= 0) && cell[0] < this.scene.clients.length && cell[1] < this.scene.rounds.length ? cell : null;
  }

  click(event) {
    const cell = this.cellAt(event);
    if (cell) this.on.pick(this.scene.clients[cell[0]]);
  }

  key({ key }) {
    const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[key];
    const ends = [this.scene.clients.length - 1, this.scene.rounds.length - 1];
    if (step) {
      this.look(null, (this.cell ?? [0, -1]).map((at, d) => Math.min(ends[d], Math.max(0, at + step[d]))));
      this.on.read(this.scene.words(...this.cell).replaceAll("\n", ", "));
    } else if (key === "Enter" && this.cell) this.on.pick(this.scene.clients[this.cell[0]]);
    else return false;
    return true;
  }
}

function repliesOf(state, n, r) {
  let count = 0;
  for (let i = 0; i < n; i++) count += [1, 4, 5].includes(state[r * n + i]);
  return count;
}

/** The grid of one run as a figure: {root, update(run), destroy()}; the seed is chosen in it, and kept in the address. */
export function gridFigure(page, title = "Client by round") {
  let run = null;
  let seed = null;
  const chart = new Grid({
    label: `${title}. Arrow keys move from cell to cell, Enter selects the client.`,
    on: { pick: (client) => page.selection.toggle(`${run.id}:${seed}:${client}`), read: page.say },
  });
  const shown = figure({ title, name: "grid", vector: () => chart.vector() });
  const head = el("div", { class: "row" });
  const legend = el("ul", { class: "legend" });
  shown.plot.append(head, legend, chart.root);
  return {
    root: shown.root,
    destroy: () => chart.destroy(),
    async update(of) {
      run = of;
      const { started, label } = run.entry;
      seed = started.includes(page.state.number("seed")) ? page.state.number("seed") : started[0];
      const [{ head: found, columns }, { events }] = await Promise.all([run.grid(seed), json(`${run.path}/events?since=0`)]);
      const { rounds, clients, meaning } = found;
      const [state, up, down] = ["state", "up", "down"].map((name) => columns.get(name).data);
      const attackers = new Set(found.attackers);
      const reasons = new Map(events.filter((one) => one.seed === seed).map((one) => [`${one.round}:${one.client}`, one.reason]));
      const at = (i, r) => r * clients.length + i;
      const reason = (i, r) => reasons.get(`${rounds[r]}:${clients[i]}`) ?? "";
      const words = (i, r) => [
        `client ${clients[i]}${attackers.has(clients[i]) ? " (attacks)" : ""}, round ${rounds[r]}: ${meaning[state[at(i, r)]]}`,
        reason(i, r), `${bytes(down[at(i, r)])} down, ${bytes(up[at(i, r)])} up`,
      ].filter(Boolean).join("\n");
      const counts = Object.keys(meaning).map((one) => state.reduce((sum, value) => sum + (value === Number(one)), 0));
      put(head, started.length > 1 && choice("seed", started, seed, (value) => page.state.set({ seed: value })));
      put(legend, Object.entries(meaning).filter(([one]) => counts[one]).map(([one, text]) => el("li", {},
        el("span", { class: "square", style: { "--own": `var(${COLOURS[one]})` } }), el("span", { text }))));
      chart.draw({ clients, rounds, state, attackers, words, quorum: found.quorum, isChosen: (client) => page.selection.has(`${run.id}:${seed}:${client}`) });
      const told = Object.entries(meaning).filter(([one]) => counts[one]).map(([one, text]) => `${number(counts[one])} ${text}`);
      const thin = found.thinned ? ` Only each ${number(found.thinned)}th round is drawn.` : "";
      const who = attackers.size ? ` Marked in red: ${attackers.size === 1 ? "the client that attacks" : `the ${attackers.size} clients that attack`}.` : "";
      shown.caption(`${label}, seed ${seed}: ${counted(rounds.length, "round")} of ${counted(clients.length, "client")}; ${listed(told)}.${who}${thin}`);
      shown.setTable(["round", "client", "what became of it", "bytes down", "bytes up", "reason"], () =>
        rounds.flatMap((round, r) => clients.map((client, i) => [round, client, meaning[state[at(i, r)]], down[at(i, r)], up[at(i, r)], reason(i, r)])));
      Object.assign(shown.root.dataset, { run: run.id, seed, rounds: rounds.length, states: rounds.map((_, r) => Array.from(state.subarray(at(0, r), at(0, r + 1))).join("")).join(" ") });
    },
  };
}
