// Where answers come from: the server, or where a page was saved as one file, from that file.

const inlined = document.getElementById("saved");
const saved = inlined ? JSON.parse(inlined.textContent) : null;

/** Whether this page is a file of its own: nothing changes, nothing can be started. */
export const isSaved = saved !== null;

/** An answer that says no, with the server's own words. */
export class Refused extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** An answer in JSON. */
export async function json(path) {
  if (saved) return kept(path);
  return (await asked(path)).json();
}

/** An answer with columns of numbers: see unframed. */
export async function frame(path) {
  if (saved) return unframed(bytes(kept(path).frame));
  return unframed(await (await asked(path)).arrayBuffer());
}

/** A change, or a question that is too long for an address. */
export async function post(path, body) {
  if (saved) throw new Refused("This page is a saved file: open it with fedpareto page to do that.");
  const headers = { "content-type": "application/json", "x-fedpareto": "page" };
  return (await asked(path, { method: "POST", headers, body: JSON.stringify(body) })).json();
}

/** Whether a saved page has this answer; a server always may. */
export function has(path) {
  return !saved || path in saved;
}

function kept(path) {
  if (!(path in saved)) throw new Refused("This is not in the saved file; open the runs with: fedpareto page", 404);
  return saved[path];
}

async function asked(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused("The server does not answer.");
  }
  if (answer.ok) return answer;
  let told = "";
  try {
    told = (await answer.json()).detail;
  } catch {
    // Not in JSON: the status says it all.
  }
  throw new Refused(told || `The server answers ${answer.status}.`, answer.status);
}

function bytes(base64) {
  const text = atob(base64);
  const found = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) found[i] = text.charCodeAt(i);
  return found.buffer;
}

const TYPES = { f4: Float32Array, f8: Float64Array, i4: Int32Array, i1: Int8Array, u1: Uint8Array };

/** Columns of numbers: a head in JSON and the numbers behind it, each column on a multiple of 8 bytes. */
export function unframed(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const columns = new Map();
  let at = 4 + length;
  for (const { name, type, shape } of head.columns) {
    const count = shape.reduce((a, b) => a * b, 1);
    const Type = TYPES[type];
    columns.set(name, { data: new Type(buffer, at, count), shape });
    at += Math.ceil((count * Type.BYTES_PER_ELEMENT) / 8) * 8;
  }
  return { head, columns };
}

// -- what is new ------------------------------------------------------------------------------------------------------

const listeners = new Set();

/** Calls f(name, data) for each event of the server: hello, changed, shelf, other; and for lost and found. */
export function onEvent(f) {
  if (!listeners.size && !isSaved) listen();
  listeners.add(f);
}

function tell(name, data) {
  for (const f of listeners) f(name, data);
}

/** One stream for all tabs: a browser opens six connections to a server, and the seventh tab would wait for ever. */
function listen() {
  // Without a certificate, browsers have locks on the machine itself only.
  if (navigator.locks) import("./tabs.js").then(({ share }) => share(tell));
  else import("./stream.js").then(({ follow }) => follow(tell));
}
