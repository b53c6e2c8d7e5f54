// Federation: which nodes are there, what became of their replies, and stop and resume; the same grid for simulated clients.

import { button, choice, command, el, put, renew } from "../dom.js";
import { gridFigure } from "../charts/grid.js";
import { table } from "../charts/table.js";
import { json, post } from "../source.js";
import { ago, bytes, counted, listed } from "../words.js";

export const styles = ["attacks"];
export const bar = [];
const STATES = { connected: "connected", away: "away", never: "never connected", finished: "has its model" };

export function mount(root, page) {
  const { state } = page;
  const [head, nodes, acts, own, warnings] = ["section", "section", "section", "section", "section"].map((tag) => el(tag));
  put(root, head, nodes, acts, own, warnings);
  const grid = gridFigure(page);
  let failed = "";
  /** How long somebody is away grows by itself. */
  const clock = setInterval(() => root.isConnected && refresh(), 5000);
  const refresh = () => api.update().catch(() => {});
  const api = {
    async update() {
      const found = page.shelf.others.filter((one) => one.kind === "deployment");
      const asked = state.get("federation") ?? page.runs.find((run) => run.entry.deployment)?.entry.deployment;
      const chosen = found.find((one) => one.id === asked) ?? (page.runs.length && state.get("runs") ? null : found[0]);
      if (chosen) await deployed(await json(`/api/federation/${chosen.id}`), found);
      else simulated(found);
      const run = chosen ? page.shelf.runs.get(root.dataset.run) : page.runs.find((one) => one.id === state.get("focus")) ?? page.runs[0];
      const isDrawn = run?.entry.has.grid && run.entry.started.length;
      renew(own, `${run?.id}${isDrawn}`, () => (isDrawn ? grid.root : el("p", { class: "soft", text: run ? "No round yet: the grid begins with the first." : "" })));
      if (isDrawn) await grid.update(run);
    },
    unmount() {
      clearInterval(clock);
      grid.destroy();
    },
  };
  return api;

  function simulated(found) {
    for (const part of [acts, warnings]) renew(part, "", () => []);
    Object.assign(root.dataset, { run: "", federation: "" });
    renew(nodes, JSON.stringify([page.runs.map((run) => run.id), state.get("focus")]), () => page.runs.length > 1 && choice("run", page.runs.map((run) => [run.id, run.entry.label]), state.get("focus") ?? page.runs[0].id, (value) => state.set({ focus: value })));
    renew(head, JSON.stringify([found, page.runs.length]), () => el("div", { class: "callout" },
      el("p", { text: page.runs.length ? "These clients are simulated: each does what a node would do, in one process. A federation of real machines shows here who is connected:" : "No federation here yet. Real machines learn together with:" }),
      command("fedpareto server init federation --schema-from table.csv --label income --sensitive sex", page.say),
      found.map((one) => button(`show ${one.name}`, () => state.set({ federation: one.id })))));
  }

  async function deployed(told, found) {
    Object.assign(root.dataset, { federation: told.id, run: told.run ?? "", status: told.status, round: told.round });
    const there = told.nodes.filter((one) => one.state === "connected").length;
    const absent = told.nodes.filter((one) => ["away", "never"].includes(one.state)).map((one) => one.client);
    const isShort = told.busy && there < told.quorum;
    renew(head, JSON.stringify([told.name, told.status, told.busy, told.round, told.rounds, there, absent, found.length]), () => [
      found.length > 1 && choice("federation", found.map((one) => [one.id, one.name]), told.id, (value) => state.set({ federation: value })),
      el("p", { class: isShort ? "callout warn" : "", role: "status" },
        el("span", { class: `pill ${told.busy ? "running" : told.status}`, text: told.status }),
        ` ${told.name}: round ${told.round} of ${told.rounds}. ${there} of ${counted(told.nodes.length, "node")} connected${told.busy && absent.length ? `; missing: node ${listed(absent.map(String))}` : ""}. A round needs ${told.quorum === 1 ? "1 reply" : `${told.quorum} replies`}.`)]);
    renew(nodes, JSON.stringify([told.nodes, Math.floor(Date.now() / 5000)]), () => table({
      caption: "Nodes",
      columns: ["node", "state", "last heard", "at work on round", { title: "replies", better: 1 }, { title: "missed", better: -1 }, { title: "refused", better: -1 }, { title: "bytes up", better: -1, text: bytes }, { title: "bytes down", better: -1, text: bytes }],
      rows: told.nodes.map((one) => [
        { value: one.name, of: one }, { value: STATES[one.state] ?? one.state, class: `node-${one.state}` },
        { value: one.since ?? NaN, node: el("span", { text: one.since ? ago(one.since) : "–" }) }, one.round, one.replies, one.missed, one.refused, one.bytes_up, one.bytes_down]),
      rowProps: ([{ of }]) => ({ data: { node: of.client, state: of.state } }),
    }));
    renew(acts, JSON.stringify([told.commands, told.busy, told.run, failed, page.shelf.about.read_only]), () => actions(told));
    renew(warnings, JSON.stringify(told.warnings), () => [
      el("h2", { text: "Last warnings" }),
      told.warnings.length
        ? table({ caption: "Last warnings", columns: ["time", "what"], rows: [...told.warnings].reverse().map((one) => [one.time, one.message]) })
        : el("p", { class: "soft", text: "None." })]);
  }

  function actions(told) {
    const act = async (what, body) => {
      failed = "";
      try {
        await post(`/api/runs/${told.run}/${what}`, body);
        page.say("The request is in the run's folder.");
      } catch (problem) {
        failed = problem.message;
      }
      refresh();
    };
    const may = told.run && !page.shelf.about.read_only;
    return [
      failed && el("p", { class: "callout bad", role: "alert", text: failed }),
      el("div", { class: "row" },
        may && told.busy && [button("stop after this round", () => act("stop", { now: false })), button("stop now", () => act("stop", { now: true }))],
        may && told.commands.resume && button("resume", () => act("resume", { set: [] }))),
      Object.values(told.commands).filter(Boolean).map((text) => command(text, page.say)),
    ];
  }
}
