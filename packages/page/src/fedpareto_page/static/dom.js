// Elements made in one call. Texts are set as text, never as markup: names in run folders may be anybody's.

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element: el("p", {class: "soft", text: "…", on: {click: f}, data: {round: 3}}, child, …). */
export function el(tag, props, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

/** New attributes, texts and listeners of an element. */
export function filled(node, props = {}, children = []) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, f] of Object.entries(value)) node.addEventListener(event, f);
    else if (name === "data" || name === "aria") {
      for (const [key, of] of Object.entries(value)) node.setAttribute(`${name}-${key}`, of);
    } else if (name === "style") {
      for (const [key, of] of Object.entries(value)) node.style.setProperty(key, of);
    } else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false));
  return node;
}

/** Whether two lists hold the same things; a first one that is not there yet does not. */
export function isSame(list, other) {
  return list?.length === other.length && list.every((one, i) => one === other[i]);
}

/** Replaces what is in an element. */
export function put(node, ...children) {
  const found = children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false);
  if (!isSame(found, node.childNodes)) node.replaceChildren(...found);
  return node;
}

/** Replaces what is in an element only if `key` is another than the last time; who had the focus keeps it. */
export function renew(node, key, make) {
  if (node.renewedFor === key) return node;
  node.renewedFor = key;
  const reached = () => [...node.querySelectorAll("button, select, input, a, [tabindex]")];
  const place = reached().indexOf(document.activeElement);
  put(node, make());
  if (place >= 0) reached()[place]?.focus();
  return node;
}

/** Another text, if it is another: else nothing is laid out again. Says whether it was. */
export function worded(node, text) {
  if (node.textContent === text) return false;
  const own = node.firstChild;
  if (own instanceof Text && !own.nextSibling) own.data = text;
  else node.textContent = text;
  return true;
}

/** A button with a text. */
export function button(text, click, props = {}) {
  return el("button", { type: "button", text, on: { click }, ...props });
}

/** A labelled choice: options are values, or [value, text] pairs. */
export function choice(label, options, value, change, props = {}) {
  const select = el(
    "select",
    { on: { change: () => change(select.value) }, ...props },
    options.map((one) => {
      const [key, text] = Array.isArray(one) ? one : [one, one];
      return el("option", { value: key, text, selected: String(key) === String(value) });
    }),
  );
  return el("label", { class: "choice" }, el("span", { text: label }), select);
}

/** A labelled tick. */
export function tick(label, checked, change) {
  const box = el("input", { type: "checkbox", checked, on: { change: () => change(box.checked) } });
  return el("label", { class: "tick" }, box, el("span", { text: label }));
}

/** Gives the user a file. */
export function download(name, content, type) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = el("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** Copies a text; says whether it could. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** A command to copy. */
export function command(text, say = () => {}) {
  const act = async () => say((await copied(text)) ? "Copied." : "Your browser does not let a page copy; mark the text.");
  return el("div", { class: "command" }, el("code", { text, tabindex: "0" }), button("copy", act));
}
