// The slider of rounds that screens share, and what plays them one after the other.

import { button, el, worded } from "./dom.js";
import { state } from "./state.js";

/** What plays rounds one after the other. */
export const play = {
  timer: null,
  last: 0,
  /** The slider reaches as far as the run: where nobody is at it, each such step would be laid out and painted unseen. */
  fit() {
    this.range.max = this.last;
    if (state.get("round") === "latest") this.range.value = this.last;
  },
  /** To a round; the last one is "latest". */
  to(round) {
    this.fit();
    this.range.value = round;
    state.set({ round: Number(this.range.value) >= Number(this.range.max) ? null : this.range.value });
  },
  step(by) {
    this.fit();
    this.to(Number(this.range.value) + by);
  },
  /** Plays from here, or from the start if this is the end; a second call stops. */
  toggle() {
    if (this.timer) return this.stop();
    this.fit();
    if (Number(this.range.value) >= Number(this.range.max)) this.to(0);
    const next = () => {
      this.step(1);
      if (Number(this.range.value) >= Number(this.range.max)) this.stop();
      else this.timer = setTimeout(next, 1000 / state.number("speed", 4));
    };
    this.timer = setTimeout(next, 1000 / state.number("speed", 4));
    this.button.textContent = "pause";
  },
  stop() {
    clearTimeout(this.timer);
    this.timer = null;
    this.button.textContent = "play";
  },
};

/** The slider of rounds. */
export function scrubber(round, last) {
  const range = el("input", { type: "range", min: 0, max: last, step: 1, value: round === "latest" ? last : round, aria: { label: "Round" }, on: { input: () => play.to(range.value), pointerenter: () => play.fit(), focus: () => play.fit() } });
  Object.assign(play, { range, told: el("output"), button: button(play.timer ? "pause" : "play", () => play.toggle()) });
  // Browsers lay out the items of a row together, whatever these contain: what changes is within an item.
  return el("div", { class: "scrubber" }, el("span", { class: "soft", text: "round" }), el("div", { class: "slide" }, range), el("div", {}, play.told), play.button);
}

/** Puts the slider where it is now. */
export function scrubbed(round, last) {
  if (!play.range) return;
  play.last = last;
  if (round !== "latest" || play.range.matches(":hover, :focus")) play.fit();
  if (round !== "latest" && document.activeElement !== play.range) play.range.value = round;
  const text = round === "latest" ? `latest (${last})` : `${round} of ${last}`;
  if (!worded(play.told, text)) return;
  play.range.setAttribute("aria-valuetext", text);
  // Room for the longer of both texts.
  play.told.style.setProperty("--letters", Math.max(`latest (${last})`.length, `${last} of ${last}`.length));
}
