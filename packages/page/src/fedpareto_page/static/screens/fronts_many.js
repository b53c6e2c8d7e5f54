// Fronts of three goals and more: every pair of them, and all side by side. One goal has no front, but clients.

import { el, put, renew } from "../dom.js";
import { figure } from "../charts/figure.js";
import { Parallel } from "../charts/parallel.js";
import { Scatter } from "../charts/scatter.js";
import { tip } from "../charts/tip.js";
import { counted, listed, spreadOf } from "../words.js";
import { brushed, chosenOf, frontKeys, groupsOf, inside, ranges, tableRows } from "./fronts_points.js";

/** Three goals and more. */
export function many(root, page, m) {
  const part = { kind: "many", panels: [], all: [] };
  const hover = tip();
  const grid = el("div", { class: "matrix", style: { "grid-template-columns": `repeat(${m - 1}, minmax(0, 1fr))` } });
  for (let y = 1; y < m; y++) {
    for (let x = 0; x < m - 1; x++) {
      if (x >= y) {
        grid.append(el("div"));
        continue;
      }
      const on = {
        brush(box, done) {
          const found = ranges(page.state);
          for (const j of [x, y]) found.delete(j);
          if (box) found.set(x, [box[0], box[2]]).set(y, [box[1], box[3]]);
          brushed(page, part.all, found, done);
        },
        pick: (group, i) => page.selection.toggle(group.key(i)),
        hover: (text, at) => hover.show(text, at && offset(panel.root, at, grid)),
        read: page.say,
      };
      const panel = new Scatter({ label: `objectives ${x + 1} and ${y + 1}`, height: Math.max(130, Math.min(240, 720 / (m - 1))), tight: true, on });
      part.panels.push({ x, y, panel });
      grid.append(el("div", {}, el("p", { class: "soft pair", data: { x, y } }), panel.root));
    }
  }
  const pairs = figure({ title: "Every pair of goals", name: "pairs", vector: () => part.panels[0].panel.vector() });
  pairs.plot.append(grid, hover.root);
  const parallel = new Parallel({
    on: {
      brush(j, ends, done) {
        const found = ranges(page.state);
        found.delete(j);
        if (ends) found.set(j, ends);
        brushed(page, part.all, found, done);
      },
      read: page.say,
    },
  });
  const across = figure({ title: "All goals at once", name: "parallel", vector: () => parallel.picture });
  across.plot.append(parallel.root);
  const legend = el("div");
  put(root, legend, across.root, pairs.root, el("section", { class: "summary" }));
  part.destroy = () => {
    for (const { panel } of part.panels) panel.destroy();
    parallel.destroy();
  };
  part.draw = async (all, found) => {
    part.all = all;
    const { names, maximise } = all[0].run;
    renew(legend, page.legendKey(), () => page.legend());
    for (const { x, y, panel } of part.panels) {
      panel.root.previousSibling.textContent = `${names[y]} over ${names[x]}`;
      const box = found.get(x) && found.get(y) ? [found.get(x)[0], found.get(y)[0], found.get(x)[1], found.get(y)[1]] : null;
      const side = (j) => ({ title: names[j], maximise: maximise[j], reversed: !maximise[j] });
      panel.draw({ x: side(x), y: side(y), groups: groupsOf(all, page, found, x, y), box });
    }
    parallel.draw({ names, maximise, groups: all.map((one) => ({ one, style: page.styles.get(one.run.id), chosen: chosenOf(one, found, page) })), ranges: found });
    describeMany([pairs, across], all, page, found);
  };
  return part;
}

function offset(node, [x, y], within) {
  const [a, b] = [node.getBoundingClientRect(), within.getBoundingClientRect()];
  return [a.left - b.left + x, a.top - b.top + y];
}

function describeMany(figures, all, page, found) {
  const total = all.reduce((sum, one) => sum + one.count, 0);
  const on = all.map((one) => one.front.reduce((a, b) => a + b, 0));
  const chosen = found.size ? all.reduce((sum, one) => sum + inside(chosenOf(one, found, page)), 0) : null;
  const text = `${counted(total, "model")}, ${page.inWords()}. Better is up, and to the right. Not dominated in all goals together: ${listed(all.map((one, k) => `${one.run.entry.label} ${on[k]} of ${one.count}`))}.` + (chosen === null ? "" : ` ${counted(chosen, "model")} brushed.`);
  const front = all.flatMap(frontKeys);
  for (const shown of figures) {
    shown.caption(text);
    Object.assign(shown.root.dataset, { points: total, front: front.join(" "), chosen: chosen ?? "" });
    shown.setTable(["run", "seed", "client", "round", ...all[0].run.names, "wanted", "on the front"], () => tableRows(all));
  }
}

// -- one goal: no front, but clients ----------------------------------------------------------------------------------

/** One goal. */
export function strips(root, page) {
  const hover = tip();
  const part = { kind: "strips", scatter: null };
  part.scatter = new Scatter({ label: "Clients of each run", height: 320, on: { pick: (group, i) => page.selection.toggle(group.key(i)), hover: (text, at) => hover.show(text, at), read: page.say } });
  const shown = figure({ title: "Clients", name: "clients", vector: () => part.scatter.vector() });
  shown.plot.append(part.scatter.root, hover.root);
  const legend = el("div");
  put(root, legend, shown.root, el("section", { class: "summary" }));
  part.destroy = () => part.scatter.destroy();
  part.draw = async (all, found) => {
    renew(legend, page.legendKey(), () => page.legend());
    const name = all[0].run.names[0];
    const groups = groupsOf(all, page, found, 0, 0).map((group, k) => ({ ...group, ys: group.xs, xs: Float64Array.from(group.xs, (_, i) => k + ((i * 0.618) % 1) * 0.6 + 0.2) }));
    part.scatter.draw({ x: { title: "runs, in the order of the legend" }, y: { title: name, maximise: all[0].run.maximise[0] }, groups });
    shown.caption(`One goal, so there is no front: each mark is a client, ${page.inWords()}. ${all.map((one) => `${one.run.entry.label}: ${spreadOf(one.columns[0])}`).join("; ")}.`);
    shown.setTable(["run", "seed", "client", "round", name, "wanted", "on the front"], () => tableRows(all));
    Object.assign(shown.root.dataset, { points: all.reduce((sum, one) => sum + one.count, 0) });
  };
  return part;
}
