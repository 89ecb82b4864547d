// Prometheus' text format, and what a view of it needs: sums, rates, quantiles.

const kSample = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const kLabel = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g;

// Samples by name, without the server's prefix: Map of name to [{labels, value}].
export function parseMetrics(text) {
  const samples = new Map();
  let prefix = '';
  for (const line of text.split('\n')) {
    const match = line.startsWith('#') ? null : kSample.exec(line);
    if (!match) continue;
    const [, name, labelText, number] = match, labels = {};
    for (const [, key, value] of (labelText || '').matchAll(kLabel)) labels[key] = value;
    if (name.endsWith('build_info')) prefix = name.slice(0, -'build_info'.length);
    if (!samples.has(name)) samples.set(name, []);
    samples.get(name).push({labels, value: number === '+Inf' ? Infinity : Number(number)});
  }
  return new Map([...samples].map(([name, list]) => [name.startsWith(prefix) ? name.slice(prefix.length) : name, list]));
}

// The samples of one model, and those of no model; all of them if it has none.
export function ofModel(samples, model) {
  const has = [...samples.values()].some(list => list.some(sample => sample.labels.model === model));
  if (!has) return samples;
  const kept = list => list.filter(({labels}) => labels.model === undefined || labels.model === model);
  return new Map([...samples].map(([name, list]) => [name, kept(list)]).filter(([, list]) => list.length));
}

const fits = (labels, wanted) => Object.entries(wanted).every(([key, value]) => labels[key] === value);

// The sum of the samples with these labels; null if there are none.
export function sum(samples, name, wanted = {}) {
  const list = (samples.get(name) || []).filter(sample => fits(sample.labels, wanted));
  return list.length ? list.reduce((total, sample) => total + sample.value, 0) : null;
}

export function labelOf(samples, name, label) {
  const list = samples.get(name);
  return list && list[0].labels[label] ? list[0].labels[label] : '';
}

// By the value of a label: Map of it to the sum.
export function byLabel(samples, name, label, wanted = {}) {
  const out = new Map();
  for (const {labels, value} of samples.get(name) || [])
    if (label in labels && fits(labels, wanted)) out.set(labels[label], (out.get(labels[label]) || 0) + value);
  return out;
}

// How much a counter grew from one scrape to another; null where it is missing. A counter that fell
// began anew with its daemon.
export function growth(before, now, name, wanted = {}) {
  const end = sum(now, name, wanted);
  if (end === null || !before) return end;
  const begin = sum(before, name, wanted) || 0;
  return end >= begin ? end - begin : end;
}

// A quantile of a histogram's observations between two scrapes, by Prometheus' rule: linear within
// a bucket. Null: there were none.
export function quantile(before, now, name, q) {
  const begin = before ? byLabel(before, `${name}_bucket`, 'le') : new Map();
  const counts = [...byLabel(now, `${name}_bucket`, 'le')]
    .map(([le, count]) => ({le: le === '+Inf' ? Infinity : Number(le), count: count - (begin.get(le) || 0)}))
    .sort((a, b) => a.le - b.le);
  const total = counts.length ? counts.at(-1).count : 0;
  if (total <= 0) return null;
  const rank = q * total, at = counts.findIndex(bucket => bucket.count >= rank);
  const low = at ? counts[at - 1] : {le: 0, count: 0}, high = counts[at];
  if (high.le === Infinity) return low.le;
  return low.le + (high.le - low.le) * (high.count > low.count ? (rank - low.count) / (high.count - low.count) : 1);
}
