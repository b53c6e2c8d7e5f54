// What the keys do, and what the words mean.

import { el } from "./dom.js";

const KEYS = [
  ["Tab", "to the next figure, field or link; the first link skips to the content"],
  ["← →", "along a front, a line, a slider or a film"],
  ["Page ↑ ↓", "to the next run in a figure"],
  ["Enter", "selects a client, or sets the round"],
  ["+ − 0", "nearer, farther, all of a picture"],
  ["k, x, Esc", "keep only what is selected, leave it out, select nothing"],
  ["Space", "plays a film"],
];
const WORDS = [
  ["sent, trained", "the model that the server gives a client, and the same after the client's own steps"],
  ["front", "the models that no other is better than in all goals at once"],
  ["hypervolume", "how much of the space of goals a front covers, from a reference point on: more is better"],
  ["IGD", "how far a front is from the best known one: less is better"],
  ["sparsity", "how far neighbours on a front are apart: less is denser"],
  ["own utility", "the goals of a client's model, weighted by what that client wants"],
  ["regret", "what the best model of the shown runs would give a client beyond its own"],
  ["gain over local", "what a client has beyond what it would have reached alone"],
];

/** Two lists. */
export function terms() {
  return [["Keys", KEYS], ["Words", WORDS]].map(([title, rows]) => [
    el("h2", { text: title }),
    el("dl", {}, rows.map(([term, meaning]) => [el("dt", { text: term }), el("dd", { text: meaning })])),
  ]);
}
