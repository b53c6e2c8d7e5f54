// What a page that lives for days no longer needs, given back in time.

/** Milliseconds between two times. */
const BETWEEN = 15000;
let last = -Infinity;

/**
 * By itself a browser collects only when about 8 MB have come together, and keeps the room that they took. Asked how much
 * a page holds it collects first; other browsers, and a saved page, cannot be asked.
 */
export async function tidy() {
  if (!globalThis.crossOriginIsolated || !performance.measureUserAgentSpecificMemory || performance.now() < last + BETWEEN) return;
  last = performance.now();
  // It fails if the page is left meanwhile.
  await performance.measureUserAgentSpecificMemory().catch(() => null);
}
