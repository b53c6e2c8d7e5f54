// Fronts: every client's model as a point, what each run offers, and what a step along a front costs.

import { el, put } from "../dom.js";
import { many, strips } from "./fronts_many.js";
import { ranges, shownOf } from "./fronts_points.js";
import { plane } from "./fronts_plane.js";

export const bar = ["eval", "split", "seed", "round"];

export function mount(root, page) {
  let view = null;
  const { state } = page;
  return {
    async update() {
      const runs = page.runs;
      if (!runs.length) {
        view?.destroy();
        view = null;
        return put(root, el("p", { class: "soft", text: "Choose runs on the left: their fronts appear here." }));
      }
      const m = runs[0].entry.objectives.length;
      const kind = m === 1 ? "strips" : m === 2 ? "plane" : "many";
      if (view?.kind !== kind || view.m !== m) {
        view?.destroy();
        view = kind === "plane" ? plane(root, page) : kind === "many" ? many(root, page, m) : strips(root, page);
        Object.assign(view, { kind, m });
      }
      const { evaluation, split, round } = page.view;
      const shown = await Promise.all(runs.map((run) => shownOf(run, page)));
      page.known = known(shown);
      root.dataset.round = round;
      root.dataset.split = split;
      root.dataset.eval = evaluation;
      await view.draw(shown, ranges(state));
      summary(root, shown, page);
    },
    unmount() {
      view?.destroy();
      page.known = null;
    },
  };
}

function known(all) {
  return (key) => {
    const [run, seed, client] = key.split(":");
    const one = all.find((each) => each.run.id === run);
    if (!one) return null;
    for (let i = 0; i < one.count; i++) {
      if (one.client[i] === Number(client) && one.seed[i] === Number(seed)) return one.columns.map((column) => column[i]);
    }
    return null;
  };
}

function summary(root, all, page) {
  const node = root.querySelector(".summary");
  if (!node) return;
  put(node, all.map((one) => {
    const warnings = one.run.entry.attack ? [`attacked: ${one.run.entry.attack}`] : [];
    return warnings.map((text) => el("p", { class: "soft", text: `${one.run.entry.label}, ${text}` }));
  }));
}
