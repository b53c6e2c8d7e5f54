// What the pictures of fronts share: a run's points as they are shown, what is brushed, and the words for each.

import { nondominated } from "../dominance.js";
import { points } from "../points.js";
import { number } from "../words.js";

const kept = new Map();

/** A run's points as they are shown, made anew only where something changed. */
export async function shownOf(run, page) {
  const version = [run.version, ...Object.values(page.view), page.state.get("only"), page.state.get("without")].join();
  const before = kept.get(run.id);
  if (before?.version === version) return before;
  const found = { ...filtered(await points(run, page.view), page), version, made: new Map() };
  kept.set(run.id, found);
  return found;
}

/** What is computed of a run's points, once. */
export function once(one, key, make) {
  if (!one.made.has(key)) one.made.set(key, make());
  return one.made.get(key);
}

/** Without what was excluded, and with what is on each run's front. */
function filtered(one, page) {
  const { selection } = page;
  const finite = (i) => one.columns.every((column) => Number.isFinite(column[i]));
  const kept = [];
  const lost = [];
  for (let i = 0; i < one.count; i++) {
    if (!finite(i)) lost.push(i);
    else if (!selection.isFiltered() || selection.isShown(one.key(i))) kept.push(i);
  }
  const taken = (array) => (kept.length === one.count ? array : array.constructor.from(kept, (i) => array[i]));
  const columns = one.columns.map(taken);
  const found = { run: one.run, count: kept.length, seed: taken(one.seed), client: taken(one.client), round: taken(one.round), columns };
  found.front = nondominated(columns, one.run.maximise);
  found.key = (i) => `${one.run.id}:${found.seed[i]}:${found.client[i]}`;
  found.preference = kept.length === one.count ? one.preference : (i) => one.preference(kept[i]);
  found.lost = lost.map((i) => `seed ${one.seed[i]}, client ${one.client[i]}`);
  return found;
}

/** By objective [low, high]: what was brushed. */
export function ranges(state) {
  const found = new Map();
  for (const part of (state.get("range") ?? "").split(",").filter(Boolean)) {
    const [j, ends] = part.split(":");
    found.set(Number(j), ends.split("~").map(Number));
  }
  return found;
}

function rangeText(found) {
  return [...found].map(([j, ends]) => `${j}:${ends.map((one) => Number(one.toPrecision(6))).join("~")}`).join(",");
}

/** Which points lie within all ranges, or are selected by name; null: no choice. */
export function chosenOf(one, found, page) {
  if (!found.size && !page.selection.size()) return null;
  const asked = `${page.state.get("range")} ${page.state.get("sel")}`;
  if (one.chosen?.asked !== asked) one.chosen = { asked, is: choose(one, found, page) };
  return one.chosen.is;
}

function choose(one, found, page) {
  if (found.size) {
    const chosen = new Uint8Array(one.count).fill(1);
    for (const [j, [low, high]] of found) {
      const column = one.columns[j];
      for (let i = 0; i < one.count; i++) if (!(column[i] >= low && column[i] <= high)) chosen[i] = 0;
    }
    return chosen;
  }
  const chosen = new Uint8Array(one.count);
  for (let i = 0; i < one.count; i++) chosen[i] = page.selection.has(one.key(i)) ? 1 : 0;
  return chosen;
}

const MOST_KEYS = 500;

/** Brushing: ranges while it goes on; at its end the clients by name too, if they are not too many. */
export function brushed(page, all, found, done) {
  const changes = { range: found.size ? rangeText(found) : null };
  if (done) {
    const keys = [];
    if (found.size) {
      for (const one of all) {
        const chosen = choose(one, found, page);
        for (let i = 0; i < one.count && keys.length <= MOST_KEYS; i++) if (chosen[i]) keys.push(one.key(i));
      }
    }
    page.state.set({ ...changes, sel: null });
    page.selection.set(keys.length <= MOST_KEYS ? keys : null);
    return;
  }
  page.state.set(changes);
}

function words(one, i) {
  const { names } = one.run;
  const preference = one.preference(i);
  return [
    `${one.run.entry.label}, client ${one.client[i]}, seed ${one.seed[i]}, round ${one.round[i]}`,
    ...names.map((name, j) => `${name} ${number(one.columns[j][i])}`),
    preference ? `wanted ${preference.map((w) => number(w, 2)).join(" : ")}` : "its preference is its own",
    one.front[i] ? "on its run's front" : dominator(one, i),
  ].join("\n");
}

function dominator(one, i) {
  const { maximise } = one.run;
  const better = (j, a, b) => (maximise[j] ? one.columns[j][a] >= one.columns[j][b] : one.columns[j][a] <= one.columns[j][b]);
  for (let k = 0; k < one.count; k++) {
    if (one.front[k] && one.columns.every((_, j) => better(j, k, i))) return `dominated by client ${one.client[k]}, seed ${one.seed[k]}`;
  }
  return "dominated";
}

export function groupsOf(all, page, found, x, y) {
  return all.map((one) => ({
    id: one.run.id, label: one.run.entry.label, style: page.styles.get(one.run.id), xs: one.columns[x], ys: one.columns[y],
    front: one.front, chosen: chosenOf(one, found, page), words: (i) => words(one, i), key: one.key,
  }));
}

export function tableRows(all) {
  return all.flatMap((one) => Array.from({ length: one.count }, (_, i) => [
    one.run.entry.label, one.seed[i], one.client[i], one.round[i], ...one.columns.map((column) => column[i]),
    one.preference(i)?.map((w) => number(w, 2)).join(" : ") ?? "–", one.front[i] ? "yes" : "no",
  ]));
}

export function frontKeys(one) {
  return once(one, "front", () => Array.from(one.front.keys()).filter((i) => one.front[i]).map(one.key));
}

export function inside(chosen) {
  let count = 0;
  for (let i = 0; i < chosen.length; i++) count += chosen[i];
  return count;
}
