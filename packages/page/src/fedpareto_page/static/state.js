// What is seen stands in the address, so that a link shows it again. Defaults are left out.

import { isSaved } from "./source.js";

const DEFAULTS = { round: "latest", seed: "all", eval: "sent" };
const SHARED = ["runs", "round", "seed", "eval", "split", "sel", "only", "without", "focus"];
const listeners = new Set();

/** "/fronts", and what stands behind the question mark. A saved page has both behind a #: a file has one address. */
function read() {
  const text = isSaved ? location.hash.slice(1) || document.documentElement.dataset.view || "/fronts" : location.pathname + location.search;
  const [path, query] = text.split("?");
  return { path, params: new URLSearchParams(query ?? "") };
}

let now = read();

function written(path, params) {
  // Colons and commas are allowed there, and can be read.
  const query = params.toString().replace(/%3A/g, ":").replace(/%2C/g, ",").replace(/%7E/g, "~").replace(/%2F/g, "/");
  return (isSaved ? "#" : "") + path + (query ? `?${query}` : "");
}

function changed(changes, kept = now.params) {
  const params = new URLSearchParams(kept);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "" || value === DEFAULTS[key]) params.delete(key);
    else params.set(key, value);
  }
  return params;
}

/** The address of a screen with what all screens share. */
export function href(path, changes = {}) {
  const shared = new URLSearchParams();
  for (const key of SHARED) if (now.params.has(key)) shared.set(key, now.params.get(key));
  return written(path, changed(changes, shared));
}

export const state = {
  get path() {
    return now.path;
  },
  /** A value, or its default, or null. */
  get(key) {
    return now.params.get(key) ?? DEFAULTS[key] ?? null;
  },
  /** A number, or what stands in for it. */
  number(key, otherwise = null) {
    const found = now.params.get(key);
    return found === null || found === "" || !Number.isFinite(Number(found)) ? otherwise : Number(found);
  },
  /** Numbers with commas between them. */
  numbers(key) {
    return (now.params.get(key) ?? "").split(",").filter((one) => one !== "").map(Number);
  },
  /** Changes what is seen: as typing does, without a step back; or with push as a step of its own. */
  set(changes, { push = false } = {}) {
    const params = changed(changes);
    if (written(now.path, params) === written(now.path, now.params)) return;
    if (push) settle();
    now = { path: now.path, params };
    if (push) history.pushState(null, "", written(now.path, params));
    else {
      // Browsers refuse an address that changes a hundred times in half a minute, as it would under a brush, and
      // each change costs more than what is drawn: it is written when all is still, or when the page is left.
      clearTimeout(timer);
      timer = setTimeout(settle, 400);
    }
    for (const f of listeners) f(false);
  },
  /** Another screen, or another view of this one. */
  go(path, changes = {}) {
    settle();
    history.pushState(null, "", href(path, changes));
    apply();
  },
  onChange(f) {
    listeners.add(f);
  },
};

let timer = null;

/** Writes the address that is due. */
function settle() {
  clearTimeout(timer);
  if (timer !== null) history.replaceState(null, "", written(now.path, now.params));
  timer = null;
}

function apply() {
  clearTimeout(timer);
  timer = null;
  const before = now;
  now = read();
  for (const f of listeners) f(before.path !== now.path);
}

addEventListener("pagehide", settle);
addEventListener("popstate", apply);
addEventListener("hashchange", () => isSaved && apply());
