// The rows under the dial: only those in the window are drawn, and of those only what changed.

import { button, el, filled, worded } from "../dom.js";
import { number } from "../words.js";

const HEIGHT = 30;
const SPARE = 2;
/** How often the browser says how much of the rows is in the window while it is scrolled: about every row. */
const LOOKS = Array.from({ length: 21 }, (_, i) => i / 20);

/** {root, draw(scene)}: scene = {columns, cells, order, probabilities, decisions, before, edits, strips, at, words}. */
export function rowTable(columns, first, pick) {
  const head = ["row", "decision", "probability", "along the dial", ...columns];
  const whole = el(
    "table",
    { class: "rows" },
    el("caption", { class: "hidden", text: "Rows with the model's decisions" }),
    el("thead", {}, el("tr", {}, head.map((text, j) => el("th", { scope: "col", text, class: typeof first[j - 4] === "number" ? "figure-cell" : null })))),
  );
  const [above, below] = [el("tbody", { aria: { hidden: "true" } }), el("tbody", { aria: { hidden: "true" } })];
  const spacers = [above, below].map((body) => body.appendChild(el("tr")).appendChild(el("td", { colspan: head.length })));
  const body = el("tbody");
  whole.append(above, body, below);
  const region = el("div", { class: "scroll rowsin", tabindex: "0", role: "region", aria: { label: "Rows with the model's decisions" } }, whole);
  const told = el("p", { class: "soft" });
  const pool = [];
  // Kept, because asking for it amid changes would have everything laid out at once.
  const room = { top: 0, height: 480, inWindow: 0 };
  let scene = null;

  const draw = () => {
    if (!scene || !room.inWindow) return;
    const count = scene.order.length;
    const seen = Math.ceil(Math.min(room.height, room.inWindow) / HEIGHT);
    const first = Math.max(0, Math.min(Math.floor(room.top / HEIGHT) - SPARE, count - seen - 2 * SPARE));
    const shown = Math.min(count - first, seen + 2 * SPARE);
    while (pool.length < shown) pool.push(body.appendChild(line(head.length - 4, pick)));
    pool.forEach((one, i) => {
      one.hidden = i >= shown;
      if (i < shown) fill(one, scene.order[first + i], first + i, scene);
    });
    spacers[0].style.height = `${first * HEIGHT}px`;
    spacers[1].style.height = `${Math.max(0, count - first - shown) * HEIGHT}px`;
    above.hidden = !first;
    below.hidden = first + shown >= count;
    const from = Math.floor(room.top / HEIGHT);
    worded(told, count ? `Rows ${from + 1} to ${Math.min(count, from + Math.floor(room.height / HEIGHT) - 1)} of ${count}` : "No rows");
  };
  const look = () => {
    Object.assign(room, { top: region.scrollTop, height: region.clientHeight });
    draw();
  };
  region.addEventListener("scroll", () => requestAnimationFrame(look), { passive: true });
  const watch = new ResizeObserver(look);
  const seen = new IntersectionObserver((found) => {
    const { isIntersecting, intersectionRect, boundingClientRect } = found[found.length - 1];
    room.inWindow = isIntersecting ? Math.max(1, intersectionRect.bottom - boundingClientRect.top) : 0;
    draw();
  }, { threshold: LOOKS });
  watch.observe(region);
  seen.observe(region);
  return {
    root: el("div", {}, told, region),
    draw(next) {
      scene = next;
      whole.setAttribute("aria-rowcount", scene.order.length + 1);
      draw();
    },
    destroy() {
      watch.disconnect();
      seen.disconnect();
    },
  };
}

function line(columns, pick) {
  const open = button("", () => pick(Number(open.dataset.row)), { class: "open" });
  const parts = { open, decision: el("span", { class: "decided" }), said: el("span", { class: "said" }), bar: el("span", { class: "bar" }), strip: el("div", { class: "stripe", role: "img", aria: { label: "not computed yet" } }) };
  const cells = Array.from({ length: columns }, () => el("td"));
  const root = el("tr", {}, el("th", { scope: "row" }, open), el("td", {}, parts.decision), el("td", { class: "chance" }, parts.bar, parts.said), el("td", {}, parts.strip), cells);
  return Object.assign(root, { parts, given: cells });
}

function fill(root, row, place, scene) {
  const { probabilities, decisions, before, strips, at, words } = scene;
  const { open, decision, said, bar, strip } = root.parts;
  const [chance, now, was] = [probabilities[row], decisions[row], before ? before[row] : decisions[row]];
  if (root.of !== row) {
    root.of = row;
    filled(root, { data: { row }, aria: { rowindex: place + 2 } });
    filled(open, { text: String(row + 1), data: { row }, aria: { label: `Row ${row + 1}: what if?` } });
  }
  if (root.chance !== chance) {
    root.dataset.probability = root.chance = chance;
    worded(said, number(chance, 3));
    if (words.isShare) bar.style.backgroundSize = `${(100 * chance).toFixed(1)}% 100%`;
  }
  if (root.decided !== `${now} ${was}`) {
    root.decided = `${now} ${was}`;
    root.dataset.decision = now;
    root.classList.toggle("changed", now !== was);
    worded(decision, now === was ? words.decision(now) : `${words.decision(now)} (was ${words.decision(was)})`);
    decision.classList.toggle("yes", now === 1 && words.isYesOrNo);
  }
  const stripe = strips && strips.of(row);
  if (strip.shown !== stripe?.image) {
    strip.shown = stripe?.image;
    strip.style.backgroundImage = stripe ? `linear-gradient(var(--ink) 0 0), ${stripe.image}` : "";
    strip.setAttribute("aria-label", stripe?.words ?? "not known yet");
  }
  strip.style.backgroundPositionX = `${(100 * at).toFixed(1)}%, 0`;
  fillCells(root, row, scene);
}

function fillCells(root, row, { columns, cells, edits }) {
  const key = `${row} ${edits.size ? JSON.stringify([...edits]) : ""}`;
  if (root.filledFor === key) return;
  root.filledFor = key;
  columns.forEach((name, j) => {
    const edited = edits.get(`${row} ${name}`);
    const value = edited === undefined ? cells[row][j] : edited;
    worded(root.given[j], value === null ? "–" : typeof value === "number" ? plain(value) : value);
    root.given[j].className = edited !== undefined ? "edited" : typeof value === "number" ? "figure-cell" : "";
  });
}

function plain(value) {
  return Number.isInteger(value) ? String(value) : number(value);
}

/** Of each row, for which of the weights it is what: as a picture, and in words. */
export function stripesOf(decisions, words) {
  const steps = decisions.length - 1;
  const made = new Map();
  const colour = (one) => (words.isYesOrNo ? (one ? "var(--c0)" : "var(--rule)") : `var(--c${one % 8})`);
  const of = (row) => {
    if (made.has(row)) return made.get(row);
    const parts = [];
    for (let i = 0; i <= steps; i++) {
      const last = parts[parts.length - 1];
      if (last && last.is === decisions[i][row]) last.to = i;
      else parts.push({ is: decisions[i][row], from: i, to: i });
    }
    // A decision changes half-way between two weights.
    const edge = (i) => Math.min(100, Math.max(0, (100 * i) / steps)).toFixed(1);
    const stops = parts.map((one) => `${colour(one.is)} ${edge(one.from - 0.5)}% ${edge(one.to + 0.5)}%`);
    const told = parts.map((one) => `${words.decision(one.is)} ${(one.from / steps).toFixed(2)} to ${(one.to / steps).toFixed(2)}`);
    const found = {
      image: `linear-gradient(to right, ${stops.join(", ")})`, parts,
      words: parts.length === 1 ? `${words.decision(parts[0].is)} everywhere` : told.join(", "),
    };
    made.set(row, found);
    return found;
  };
  return { of, turns: (row) => of(row).parts.length > 1 };
}
