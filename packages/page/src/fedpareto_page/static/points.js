// Points of clients, as screens of fronts show them.

/**
 * The clients' points of a run: {seed, client, round, columns: [array for each objective], preference(i)}.
 * Of the latest round of a finished run they are its solutions.
 */
export async function points(run, { evaluation, split, round, seed }) {
  const wanted = (one) => seed === "all" || Number(seed) === one;
  const m = run.entry.objectives.length;
  const parts = [];
  const { head, columns } = await run.solutions(split);
  if (round === "latest" && evaluation === "sent" && run.finished) {
    for (const { seed: one, round: end, clients, count } of head.solutions) {
      const data = columns.get(`values.${one}`)?.data;
      if (data && wanted(one)) parts.push({ seed: one, round: end, clients, count, data });
    }
  } else {
    const values = await run.values(evaluation, split);
    for (const line of values.at(round === "latest" ? round : Number(round))) {
      if (wanted(line.seed)) parts.push({ ...line, clients: null, count: line.clients });
    }
  }
  const count = parts.reduce((sum, part) => sum + part.count, 0);
  const found = { run, count, seed: new Int32Array(count), client: new Int32Array(count), round: new Int32Array(count) };
  found.columns = Array.from({ length: m }, () => new Float64Array(count));
  let at = 0;
  for (const part of parts) {
    const end = at + part.count;
    found.seed.fill(part.seed, at, end);
    found.round.fill(part.round, at, end);
    for (let i = 0; i < part.count; i++) found.client[at + i] = part.clients ? part.clients[i] : i;
    for (let j = 0; j < m; j++) found.columns[j].set(part.data.subarray(j * part.count, (j + 1) * part.count), at);
    at = end;
  }
  found.key = (i) => `${run.id}:${found.seed[i]}:${found.client[i]}`;
  found.preference = (i) => {
    const data = columns.get(`preferences.${found.seed[i]}`)?.data;
    const own = data && Array.from(data.subarray(found.client[i] * m, (found.client[i] + 1) * m));
    return own?.length === m && own.every(Number.isFinite) ? own : null;
  };
  return found;
}
