// Studies: what stands on the shelf beside single runs, and how each of it is shown.

import { command, el, renew } from "../dom.js";
import { table } from "../charts/table.js";
import { counted } from "../words.js";

export const styles = ["new"];
export const bar = [];

/** What each kind is, and the screen that shows it by this key of its address. */
const KINDS = {
  matrix: ["Attacks and defences", "every algorithm under every attack with every defence", "/attacks", "matrix"],
  sweep: ["Sweeps", "one run for each combination of values, or for each of many specs"],
  tuning: ["Tuning studies", "parameters that are searched for"],
  mission: ["Space missions", "runs whose clients are satellites"],
  deployment: ["Federations", "a server, and nodes on machines of their own", "/federation", "federation"],
};
/** Runs of a study that are shown together. */
const MOST = 8;
const EMPTY = [["many runs at once", "fedpareto sweep examples/sweep.yaml --out runs/sweep"], ["attacks against defences", "fedpareto matrix examples/matrix.yaml --out runs/matrix"], ["a mission in space", "fedpareto space simulate examples/missions/earth-observation.yaml"]];

export function mount(root, page) {
  return {
    update() {
      const { others, entries } = page.shelf;
      root.dataset.studies = others.length;
      renew(root, JSON.stringify([others, entries.map((one) => one.name)]), () => (others.length ? all(others, page) : nothing(page)));
    },
  };
}

function nothing(page) {
  return [el("p", { text: "There is nothing here yet but single runs. These make more:" }), EMPTY.map(([text, line]) => [el("p", { class: "label", text }), command(line, page.say)])];
}

function all(others, page) {
  return Object.entries(KINDS).map(([kind, [name, about, path, key]]) => {
    const found = others.filter((one) => one.kind === kind);
    const shown = (one) => {
      const ways = [runsOf(one, page), path && link("open", path, { [key]: one.id }, page), one.command && command(one.command, page.say)].filter(Boolean);
      return ways.length ? ways : "no run of it has begun";
    };
    const rows = found.map((one) => [one.name, one.status || "–", { value: one.name, node: el("div", { class: "row" }, one.error ? el("span", { class: "bad", text: one.error }) : shown(one)) }]);
    return found.length > 0 && el("section", {}, el("h2", { text: name }), el("p", { class: "soft", text: `${counted(found.length, "folder")}: ${about}.` }), table({ caption: name, columns: ["folder", "status", "shown by"], rows }));
  });
}

/** To the runs that stand in its folder, or to the one that it is. */
function runsOf({ name }, page) {
  const runs = page.shelf.entries.filter((one) => !one.error && (one.name === name || one.name.startsWith(`${name}/`)));
  if (runs.length === 1) return link("its run", `/run/${runs[0].id}`, {}, page);
  return runs.length > 0 && link(`its ${counted(runs.length, "run")}`, "/fronts", { runs: runs.slice(0, MOST).map((one) => one.id).join(","), sel: null }, page);
}

function link(text, path, changes, page) {
  return el("a", { href: page.href(path, changes), text, on: { click: (event) => (event.preventDefault(), page.go(path, changes)) } });
}
