// What is computed of fronts. Points are columns: one array for each objective.

/** Which of the points in `columns` no other dominates: Uint8Array. `maximise` by objective. */
export function nondominated(columns, maximise) {
  const count = columns[0]?.length ?? 0;
  const found = new Uint8Array(count);
  const sign = maximise.map((up) => (up ? 1 : -1));
  const value = (j, i) => sign[j] * columns[j][i];
  const order = candidates(columns, sign);
  // Best first: nothing that comes later dominates what came before.
  order.sort((a, b) => {
    for (let j = 0; j < columns.length; j++) if (value(j, a) !== value(j, b)) return value(j, b) - value(j, a);
    return 0;
  });
  const front = [];
  const two = columns.length === 2;
  let best = -Infinity;
  for (const i of order) {
    if (two) {
      // The first objective falls: only who is best so far in the second counts, or equals the last one in both.
      const last = front[front.length - 1];
      const same = last !== undefined && value(0, last) === value(0, i) && value(1, last) === value(1, i);
      if (value(1, i) > best || same) (best = Math.max(best, value(1, i))), front.push(i);
    } else if (!front.some((other) => dominates(value, columns.length, other, i))) front.push(i);
  }
  for (const i of front) found[i] = 1;
  return found;
}

/** Those that are finite and not dominated by the one with the largest sum: of many points, few. */
function candidates(columns, sign) {
  const count = columns[0]?.length ?? 0;
  const found = [];
  let [best, most] = [-1, -Infinity];
  for (let i = 0; i < count; i++) {
    let sum = 0;
    for (let j = 0; j < columns.length; j++) sum += sign[j] * columns[j][i];
    if (!Number.isFinite(sum)) continue;
    found.push(i);
    if (sum > most) (most = sum), (best = i);
  }
  return found.filter((i) => {
    let worse = false;
    for (let j = 0; j < columns.length; j++) {
      const gap = sign[j] * (columns[j][i] - columns[j][best]);
      if (gap > 0) return true;
      if (gap < 0) worse = true;
    }
    return !worse;
  });
}

function dominates(value, m, a, b) {
  let better = false;
  for (let j = 0; j < m; j++) {
    if (value(j, a) < value(j, b)) return false;
    if (value(j, a) > value(j, b)) better = true;
  }
  return better;
}

/** The corners of a front of two objectives, by the first: [[x, y], …]. */
export function frontOf(xs, ys, maximise) {
  const on = nondominated([xs, ys], maximise);
  const found = [];
  for (let i = 0; i < xs.length; i++) if (on[i]) found.push([xs[i], ys[i]]);
  return found.sort((a, b) => a[0] - b[0]);
}

/**
 * The attainment surface of several seeds: at each x the best y that a share of the seeds attains, as corners.
 * `fronts` by seed, each as frontOf gives it.
 */
export function attainment(fronts, share, [upX, upY]) {
  const known = fronts.filter((one) => one.length);
  if (!known.length) return [];
  const needed = Math.max(1, Math.ceil(share * known.length - 1e-9));
  const worst = upY ? -Infinity : Infinity;
  const xs = [...new Set(known.flatMap((front) => front.map(([x]) => x)))].sort((a, b) => a - b);
  const corners = [];
  for (const x of xs) {
    const bests = known.map((front) => {
      let best = worst;
      for (const [px, py] of front) if ((upX ? px >= x : px <= x) && (upY ? py > best : py < best)) best = py;
      return best;
    });
    bests.sort((a, b) => (upY ? b - a : a - b));
    if (Number.isFinite(bests[needed - 1])) corners.push([x, bests[needed - 1]]);
  }
  return frontOf(corners.map((c) => c[0]), corners.map((c) => c[1]), [upX, upY]);
}

/** The hypervolume of two objectives above a reference point. */
export function hypervolume2(front, [rx, ry], [upX, upY]) {
  const points = front.map(([x, y]) => [upX ? x - rx : rx - x, upY ? y - ry : ry - y]).filter(([x, y]) => x > 0 && y > 0);
  points.sort((a, b) => b[0] - a[0]);
  let total = 0;
  let height = 0;
  for (const [x, y] of points) if (y > height) (total += x * (y - height)), (height = y);
  return total;
}
