// All runs: what they are, how far, what they reached; and what differs between the chosen ones.

import { command, el, put, svg } from "../dom.js";
import { table } from "../charts/table.js";
import { json } from "../source.js";
import { extent } from "../maths.js";
import { ago, bytes, counted, decimalsOf, number, secondsLeft, time } from "../words.js";

export const bar = [];

export function mount(root, page) {
  const parts = { runs: el("section"), compared: el("section") };
  put(root, parts.runs, parts.compared);
  let asked = 0;
  return {
    async update(why) {
      if (why.has("data") && !page.isSaved && Date.now() - asked > 900) {
        asked = Date.now();
        await page.shelf.load();
      }
      put(parts.runs, ...runs(page));
      root.dataset.runs = page.shelf.entries.length;
      await compared(parts.compared, page);
    },
  };
}

function runs(page) {
  const { entries, about } = page.shelf;
  if (!entries.length) {
    return [
      el("p", { text: `There are no runs in ${about.title ?? "this folder"} yet. This makes one, and it will appear here by itself:` }),
      command("fedpareto run fedpref --problem synthetic --rounds 20 --seeds 3", page.say),
    ];
  }
  const damaged = entries.filter((one) => one.error);
  const shown = entries.filter((one) => !one.error);
  const link = (entry) => el("a", { href: page.href(`/run/${entry.id}`), text: entry.label, on: { click: (event) => {
    event.preventDefault();
    page.go(`/run/${entry.id}`);
  } } });
  const rows = shown.map((one) => [
    { value: one.label, node: el("span", { class: "row" }, link(one)) },
    one.name,
    one.problem,
    { value: one.status.name, node: status(one) },
    { value: one.headline?.[1] ?? NaN, node: el("span", { text: headline(one) }) },
    { value: one.headline?.[1] ?? NaN, node: spark(one.spark ?? []) },
    one.clients,
    one.failures,
    { value: one.bytes_up + one.bytes_down, node: el("span", { text: bytes(one.bytes_up + one.bytes_down) }) },
    { value: -one.changed, node: el("span", { text: ago(one.changed) }) },
  ]);
  return [
    el("p", { class: "soft", text: `${counted(shown.length, "run")} in ${about.title ?? "this folder"}. Tick those that you want to see together; ${counted(page.runs.length, "run")} chosen.` }),
    ...damaged.map((one) => el("p", { class: "callout bad", text: `${one.name}: ${one.error}` })),
    table({
      caption: "All runs",
      columns: ["run", "folder", "problem", "status", { title: "result", better: 1 }, "over rounds", "clients", { title: "missing replies", better: -1 }, { title: "traffic", better: -1 }, "last change"],
      rows,
    }),
  ];
}

function headline(one) {
  if (!one.headline) return "–";
  const [name, mean, deviation] = one.headline;
  const decimals = decimalsOf(deviation, mean);
  const spread = one.started.length > 1 ? ` ± ${number(deviation, decimals)}` : "";
  return `${name} ${number(mean, one.started.length > 1 ? decimals : null)}${spread}`;
}

function status(one) {
  const { name, round, message, busy } = one.status;
  const alone = name === "running" && busy === false;
  const words = alone
    ? `left at round ${round} of ${one.rounds}`
    : name === "running" ? `round ${round} of ${one.rounds}, ${time(secondsLeft(one))} left` : name;
  return el("span", { class: `pill ${alone ? "stopped" : name}`, text: words, title: message || null });
}

function spark(values) {
  const [low, high] = extent([values]);
  const place = (value, i) => `${((i / Math.max(1, values.length - 1)) * 88 + 1).toFixed(1)} ${(18 - ((value - low) / (high - low || 1)) * 16).toFixed(1)}`;
  const known = values.filter(Number.isFinite);
  return svg("svg", { class: "spark", viewBox: "0 0 90 20", role: "img", aria: { label: known.length ? `from ${number(known[0])} to ${number(known[known.length - 1])}` : "no values yet" } },
    known.length > 1 && svg("path", { d: `M${known.map(place).join("L")}` }));
}

async function compared(root, page) {
  if (page.runs.length < 1) return put(root);
  const path = `/api/compare?runs=${page.runs.map((run) => run.id).join(",")}`;
  const version = page.runs.map((run) => run.version).join();
  if (root.dataset.version === version) return root;
  const answer = await json(path);
  root.dataset.version = version;
  return put(root, results(answer, page), differences(answer, page));
}

function results({ table: found, across = [], by_device: devices = [], refused }, page) {
  if (refused) return el("p", { class: "callout warn", text: refused });
  const titled = [["Side by side", found], ...across.map((one) => [one.title, one]), ...devices.map((one) => [one.title, one])];
  return titled.map(([name, one]) => [el("h2", { text: name }), plainTable(one, name, page), (one.notes ?? []).map((text) => el("p", { class: "soft", text }))]);
}

/** A table of the report, as `table.json` has it. */
function plainTable({ columns, rows }, caption, page) {
  const cells = rows.map((row) => [
    { value: row.label, class: row.reference ? "soft" : null },
    ...columns.map(({ key }) => {
      const { mean, deviation, best, per_seed: seeds } = row.values[key];
      const text = seeds.length > 1 && mean !== null ? `${number(mean, decimalsOf(deviation, mean))} ± ${number(deviation, decimalsOf(deviation, mean))}` : number(mean);
      return { value: mean ?? NaN, node: el("span", { text }), class: best ? "best" : null };
    }),
  ]);
  const better = { higher: 1, lower: -1 };
  const heads = columns.map((one) => ({ title: one.title, better: better[one.better] ?? 0, about: one.better ? `${one.better} is better` : null }));
  return table({ columns: ["run", ...heads], rows: cells, caption });
}

function differences({ differences: found }, page) {
  if (page.runs.length < 2) return null;
  const rows = found.map(({ key, values }) => [key, ...page.runs.map((run) => text(values[run.id]))]);
  return [
    el("h2", { text: "What differs" }),
    rows.length
      ? table({ columns: ["parameter", ...page.runs.map((run) => run.entry.label)], rows, caption: "What differs between the specs" })
      : el("p", { class: "soft", text: "Nothing: these runs have the same spec." }),
  ];
}

function text(value) {
  return value === null || value === undefined ? "–" : typeof value === "object" ? JSON.stringify(value) : String(value);
}
