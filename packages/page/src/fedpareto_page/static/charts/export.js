// Figures as files of their own.

import { el, svg } from "../dom.js";

const PAINTED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "stroke-opacity",
  "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline"];

/** An SVG file of its own: the styles of this page's sheet written into it. */
export function drawn(picture) {
  const copy = picture.cloneNode(true);
  const holder = el("div", { class: "offstage" });
  holder.append(copy);
  document.body.append(holder);
  const nodes = [copy, ...copy.querySelectorAll("*")];
  for (const node of nodes) {
    const style = getComputedStyle(node);
    for (const name of PAINTED) {
      const value = style.getPropertyValue(name);
      if (value && value !== "none" && value !== "normal") node.setAttribute(name, value);
      else if (name === "fill") node.setAttribute(name, value || "none");
    }
  }
  // Only now: what a node has of these shapes those within it.
  for (const node of nodes) for (const name of ["class", "style", "tabindex"]) node.removeAttribute(name);
  holder.remove();
  const [width, height] = ["width", "height"].map((side) => Number(picture.getAttribute(side)));
  const paper = getComputedStyle(document.documentElement).getPropertyValue("--paper").trim();
  copy.prepend(svg("rect", { width, height, fill: paper }));
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return new XMLSerializer().serializeToString(copy);
}

/** The same as a picture, twice as fine as on the screen. */
export async function painted(picture) {
  const [width, height] = ["width", "height"].map((side) => Number(picture.getAttribute(side)));
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([drawn(picture)], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = el("canvas", { width: width * 2, height: height * 2 });
  canvas.getContext("2d").drawImage(image, 0, 0, width * 2, height * 2);
  URL.revokeObjectURL(image.src);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
