// What is computed of series.

/** The mean of what is known. */
export function mean(values) {
  let sum = 0;
  let count = 0;
  for (const one of values) if (Number.isFinite(one)) (sum += one), count++;
  return count ? sum / count : NaN;
}

/** The population deviation of what is known. */
export function deviation(values) {
  const centre = mean(values);
  let sum = 0;
  let count = 0;
  for (const one of values) if (Number.isFinite(one)) (sum += (one - centre) ** 2), count++;
  return count ? Math.sqrt(sum / count) : NaN;
}

/** The least and the largest of all that is known in several arrays. */
export function extent(arrays) {
  let low = Infinity;
  let high = -Infinity;
  for (const values of arrays) {
    for (let i = 0; i < values.length; i++) {
      const one = values[i];
      if (one < low && one > -Infinity) low = one;
      if (one > high && one < Infinity) high = one;
    }
  }
  return [low, high];
}

/** A running mean over what lies at most `reach` places away. */
export function smooth(values, reach) {
  if (!reach) return values;
  const found = new Float64Array(values.length);
  for (let i = 0; i < values.length; i++) {
    found[i] = mean(values.subarray(Math.max(0, i - reach), Math.min(values.length, i + reach + 1)));
  }
  return found;
}
