// The words beside a point.

import { el } from "../dom.js";

/** {root, show(text, [x, y])}; an empty text hides it. */
export function tip() {
  const root = el("div", { class: "tip", hidden: true, role: "presentation" });
  return {
    root,
    show(text, at) {
      root.hidden = !text;
      if (!text) return;
      root.textContent = text;
      const room = root.parentElement?.clientWidth ?? 400;
      const left = Math.max(0, Math.min(at[0] + 14, room - 240));
      root.style.setProperty("left", `${left}px`);
      root.style.setProperty("top", `${at[1] + 14}px`);
    },
  };
}
