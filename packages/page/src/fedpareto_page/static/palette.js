// Colours, shapes and dashes of runs. Colour is the algorithm, never the seed; CSS has the colours for both papers.

/** Series that have a colour; all others are grey context. */
export const COLOURED = 8;
/** Corners of the marks in a square from −1 to 1; none: a circle. */
const CORNERS = [
  null,
  [-0.87, -0.87, 0.87, -0.87, 0.87, 0.87, -0.87, 0.87],
  [0, -1.1, 1, 0.75, -1, 0.75],
  [0, -1.25, 1, 0, 0, 1.25, -1, 0],
  [0, 1.1, -1, -0.75, 1, -0.75],
  [-0.35, -1, 0.35, -1, 0.35, -0.35, 1, -0.35, 1, 0.35, 0.35, 0.35, 0.35, 1, -0.35, 1, -0.35, 0.35, -1, 0.35, -1, -0.35,
    -0.35, -0.35],
  [-1, -0.6, -0.6, -1, 0, -0.4, 0.6, -1, 1, -0.6, 0.4, 0, 1, 0.6, 0.6, 1, 0, 0.4, -0.6, 1, -1, 0.6, -0.4, 0],
  [-0.5, -1, 0.5, -1, 1, 0, 0.5, 1, -0.5, 1, -1, 0],
];

/** The outline of a mark of radius r, to be a part of a longer path. */
export function mark(shape, x, y, r) {
  const corners = CORNERS[shape];
  const at = (value) => Math.round(value * 10) / 10;
  if (!corners) return `M${at(x - r)} ${at(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`;
  let found = "";
  for (let i = 0; i < corners.length; i += 2) found += `${i ? "L" : "M"}${at(x + r * corners[i])} ${at(y + r * corners[i + 1])}`;
  return `${found}Z`;
}

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2", "1 4", "6 2 6 5"];

/**
 * By run id {colour: a CSS colour, shape, dash, index}. Runs of one algorithm share its colour, if there are others.
 * `all` are those that could be shown beside them: whoever is ticked, a run keeps what it has, as long as there is enough.
 */
export function styles(runs, all = runs) {
  const names = [...new Set(all.map((run) => run.entry.algorithm))].sort();
  const alone = names.length === 1;
  const places = new Map([...all].sort((a, b) => (a.entry.name < b.entry.name ? -1 : 1)).map((run, i) => [run.id, i]));
  const colours = given(alone ? runs.map((run) => run.id) : [...new Set(runs.map((run) => run.entry.algorithm))], (one) => (alone ? places.get(one) : names.indexOf(one)));
  const shapes = given(runs.map((run) => run.id), (id) => places.get(id));
  const found = new Map();
  for (const run of runs) {
    const index = colours.get(alone ? run.id : run.entry.algorithm);
    const place = shapes.get(run.id);
    const colour = index < COLOURED ? `var(--c${index})` : "var(--grey)";
    found.set(run.id, { colour, shape: place % CORNERS.length, dash: DASHES[place % DASHES.length], index });
  }
  return found;
}

/** A number for each, its own where that is below eight and free, else the first that is. */
function given(wanted, own) {
  const found = new Map();
  const taken = new Set();
  for (const one of wanted) if (own(one) < COLOURED && !taken.has(own(one))) taken.add(found.set(one, own(one)).get(one));
  let next = 0;
  for (const one of wanted) {
    if (found.has(one)) continue;
    while (taken.has(next)) next++;
    taken.add(found.set(one, next).get(one));
  }
  return found;
}

const known = new Map();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => known.clear());

/** A CSS colour as it is now, for a canvas: [r, g, b]. */
export function rgb(colour) {
  if (!known.has(colour)) known.set(colour, parsed(colour));
  return known.get(colour);
}

function parsed(colour) {
  const name = /^var\((.*)\)$/.exec(colour)?.[1];
  const text = name ? getComputedStyle(document.documentElement).getPropertyValue(name).trim() : colour;
  const digits = text.slice(1).length === 3 ? [...text.slice(1)].map((d) => d + d).join("") : text.slice(1);
  return [0, 2, 4].map((i) => parseInt(digits.slice(i, i + 2), 16));
}

const VIRIDIS = [
  [68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142],
  [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37],
];

/** From 0 to 1: an ordered scale that those who see no red or green can read. */
export function viridis(share) {
  const place = Math.min(1, Math.max(0, share)) * (VIRIDIS.length - 1);
  const low = Math.min(VIRIDIS.length - 2, Math.floor(place));
  const part = place - low;
  const mixed = VIRIDIS[low].map((one, i) => Math.round(one + part * (VIRIDIS[low + 1][i] - one)));
  return `rgb(${mixed.join(",")})`;
}

/** The colour of a preference: from the last objective to the first; of three and more, a mix of their corners. */
export function ofPreference(preference) {
  if (!preference) return "var(--grey)";
  if (preference.length < 3) return standing(viridis(preference[0]).match(/\d+/g).map(Number));
  const corners = [[0, 114, 178], [213, 94, 0], [0, 128, 94], [169, 79, 134], [148, 99, 0]];
  return standing([0, 1, 2].map((c) => preference.reduce((sum, w, i) => sum + w * corners[i % corners.length][c], 0)));
}

/** A colour, moved from the paper's towards the ink's until it stands out at 3 : 1. */
function standing(colour) {
  const [paper, ink] = ["--paper", "--ink"].map((name) => rgb(`var(${name})`));
  for (let part = 0; part < 1; part += 0.05) {
    const mixed = colour.map((one, i) => Math.round(one + part * (ink[i] - one)));
    const [low, high] = [luminance(mixed), luminance(paper)].sort((a, b) => a - b);
    if (high + 0.05 >= 3 * (low + 0.05)) return `rgb(${mixed.join(",")})`;
  }
  return "var(--ink)";
}

function luminance(colour) {
  const [r, g, b] = colour.map((one) => (one <= 10 ? one / 3294.6 : ((one / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Ink that can be read on a colour of viridis. */
export function inkOn(share) {
  return share > 0.6 ? "#000" : "#fff";
}
