// Which clients are selected: one set for all screens, kept in the address as RUN:SEED:0-9.12,…

import { button, el, renew } from "./dom.js";
import { state } from "./state.js";
import { counted, number } from "./words.js";
import { table } from "./charts/table.js";

const parsed = new Map();

/** Keys "RUN:SEED:CLIENT" of a text in the address. */
function keys(text) {
  if (!text) return null;
  if (!parsed.has(text)) {
    if (parsed.size > 50) parsed.clear();
    parsed.set(text, new Set(text.split(",").flatMap((part) => {
      const [run, seed, clients = ""] = part.split(":");
      return clients.split(".").flatMap((one) => {
        const [from, to = from] = one.split("-").map(Number);
        if (!(to >= from && to - from < 1e5)) return [];
        return Array.from({ length: to - from + 1 }, (_, i) => `${run}:${seed}:${from + i}`);
      });
    })));
  }
  return parsed.get(text);
}

/** A set of keys as a short text. */
export function written(set) {
  const groups = new Map();
  for (const key of set) {
    const [run, seed, client] = key.split(":");
    const group = `${run}:${seed}`;
    groups.set(group, [...(groups.get(group) ?? []), Number(client)]);
  }
  return [...groups].map(([group, clients]) => `${group}:${ranges(clients.sort((a, b) => a - b))}`).join(",");
}

function ranges(numbers) {
  const found = [];
  for (const one of numbers) {
    const last = found[found.length - 1];
    if (last && one === last[1] + 1) last[1] = one;
    else if (!last || one > last[1]) found.push([one, one]);
  }
  return found.map(([from, to]) => (from === to ? from : `${from}-${to}`)).join(".");
}

export const selection = {
  /** Whether a key is selected; null: nothing is. */
  has(key) {
    const found = keys(state.get("sel"));
    return found ? found.has(key) : null;
  },
  size() {
    return keys(state.get("sel"))?.size ?? 0;
  },
  all() {
    return [...(keys(state.get("sel")) ?? [])];
  },
  /** Whether a key is neither excluded nor outside of what was kept. */
  isShown(key) {
    const [only, without] = [keys(state.get("only")), keys(state.get("without"))];
    return (!only || only.has(key)) && !without?.has(key);
  },
  isFiltered() {
    return Boolean(state.get("only") || state.get("without"));
  },
  set(list) {
    state.set({ sel: list?.length ? written(new Set(list)) : null });
  },
  /** One key on or off. */
  toggle(key) {
    const found = new Set(keys(state.get("sel")) ?? []);
    if (!found.delete(key)) found.add(key);
    this.set([...found]);
  },
  /** Two sets of the address as one. */
  joined(...names) {
    return written(new Set(names.flatMap((name) => [...(keys(state.get(name)) ?? [])])));
  },
};

/** The drawer takes its room before the screen is drawn, which would else be drawn twice: wide, and again beside it. */
export function makeRoom(root) {
  root.hidden = !selection.all().length && !selection.isFiltered();
}

/** What is selected, as a table beside the screen; screens say what they know of each key in `page.known`. */
export function drawer(root, page) {
  makeRoom(root);
  if (root.hidden) return;
  const chosen = selection.all();
  const rows = chosen.map((key) => {
    const [run, seed, client] = key.split(":");
    const known = page.known?.(key);
    return [page.shelf.runs.get(run)?.entry.label ?? "a run that is gone", Number(seed), Number(client), ...(known ?? [])];
  });
  const names = page.known ? (page.runs[0]?.names ?? []) : [];
  renew(root, JSON.stringify([rows, names]), () => [
    el("h2", { text: chosen.length ? `${counted(chosen.length, "client")} selected` : "Filtered" }),
    el("p", { class: "row" },
      button("clear (Esc)", () => state.set({ sel: null, range: null, only: null, without: null })),
      chosen.length > 0 && button("keep only (k)", () => state.set({ only: state.get("sel"), sel: null, range: null })),
      chosen.length > 0 && button("exclude (x)", () => state.set({ without: selection.joined("without", "sel"), sel: null, range: null })),
    ),
    chosen.length > 0 && table({
      columns: ["run", "seed", "client", ...names.map((title) => ({ title, text: (value) => number(value) }))],
      rows,
      caption: "Selected clients",
      most: 100,
    }),
  ]);
}
