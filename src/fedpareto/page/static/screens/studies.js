// Studies: what stands on the shelf beside single runs, and how each of it is shown.

import { command, el, put } from "../dom.js";
import { table } from "../charts/table.js";
import { counted } from "../words.js";

export const title = "Studies";
export const bar = [];

/** What each kind is, and the screen or the command that shows it. */
const KINDS = {
  matrix: ["Attacks and defences", "every algorithm under every attack with every defence", "/attacks"],
  sweep: ["Sweeps", "one run for each combination of values, or a list of specs", null],
  tuning: ["Tuning studies", "parameters that are searched for", null],
  mission: ["Space missions", "runs whose clients are satellites", null],
  deployment: ["Federations", "a server and nodes on machines of their own", "/federation"],
};
const EMPTY = [["many runs at once", "fedpareto sweep examples/sweep.yaml --out runs/sweep"], ["attacks against defences", "fedpareto matrix examples/matrix.yaml --out runs/matrix"], ["a mission in space", "fedpareto space simulate examples/mission.yaml"]];

export function mount(root, page) {
  return {
    update() {
      const { others } = page.shelf;
      root.dataset.studies = others.length;
      if (!others.length) {
        return put(root, el("p", { text: "There is nothing here yet but single runs. These make more:" }), EMPTY.map(([text, line]) => [el("p", { class: "label", text }), command(line, page.say)]));
      }
      return put(root, Object.entries(KINDS).map(([kind, [name, about, path]]) => {
        const found = others.filter((one) => one.kind === kind);
        return found.length > 0 && el("section", {}, el("h2", { text: name }), el("p", { class: "soft", text: `${counted(found.length, "folder")}: ${about}.` }), listed(found, path, page));
      }));
    },
  };
}

function listed(found, path, page) {
  const shown = (one) => {
    if (one.error) return el("span", { class: "bad", text: one.error });
    if (path) return el("a", { href: page.href(path, { of: one.id }), text: "open", on: { click: (event) => (event.preventDefault(), page.go(path, { of: one.id })) } });
    return one.command ? command(one.command, page.say) : el("span", { class: "soft", text: "–" });
  };
  return table({ caption: "Studies", columns: ["folder", "status", "shown by"], rows: found.map((one) => [one.name, one.status ?? "–", { value: one.command ?? path ?? "", node: shown(one) }]) });
}
