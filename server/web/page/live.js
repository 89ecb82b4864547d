// The live view: what the server's metrics say now. Scraped only while it can be seen.
import {call} from './api.js';
import {byId, el, svg} from './dom.js';
import {heatMap} from './heat.js';
import {byLabel, growth, labelOf, ofModel, parseMetrics, quantile, sum} from './metrics.js';
import {chosenModel} from './models.js';

const kPollMs = 1000;
const kKept = 61;  // scrapes: a minute

let scrapes = [];  // {time, samples}, the oldest first
let timer = 0, polling = false;

const number = (value, digits = 0) => value.toLocaleString('en', {maximumFractionDigits: digits});
const percent = share => `${number(share * 100, share < 0.1 ? 1 : 0)} %`;
const duration = s => s < 0.001 ? `${number(s * 1e6)} µs` : s < 1 ? `${number(s * 1e3, s < 0.02 ? 2 : 0)} ms` : `${number(s, 1)} s`;

function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; n >= 1024 && unit < 4; ++unit) n /= 1024;
  return `${number(n, n < 10 && unit ? 1 : 0)} ${units[unit]}`;
}

const visible = () => !byId('live').hidden && !document.hidden;

export function showLive(open) {
  byId('live').hidden = !open;
  byId('live-toggle').setAttribute('aria-expanded', String(open));
  if (open) poll();
}

document.addEventListener('visibilitychange', () => { if (visible()) poll(); });

async function poll() {
  clearTimeout(timer);
  if (polling || !visible()) return;
  polling = true;
  try {
    const text = await (await call('/metrics')).text();
    scrapes = [...scrapes, {time: performance.now() / 1000, samples: ofModel(parseMetrics(text), chosenModel().id)}].slice(-kKept);
    byId('live-state').textContent = '';
    draw();
  } catch (error) {
    byId('live-state').textContent = error.message;
  }
  polling = false;
  if (visible()) timer = setTimeout(poll, kPollMs);
}

// Of the last minute if something happened in it, else since the server began.
function recent(name, ask) {
  const now = scrapes.at(-1).samples, first = scrapes[0].samples;
  const fresh = scrapes.length > 1 && growth(first, now, name) > 0;
  return {value: ask(fresh ? first : null, now), fresh};
}

// Decoded tokens a second of the time that decoding took, as under an answer: idle time and prompts
// are no part of it. 0 where nothing was decoded.
function speed(from, to) {
  const seconds = ['decode', 'verify'].reduce((all, phase) => all + (growth(from, to, 'engine_step_seconds_sum', {phase}) || 0), 0);
  return seconds > 0 ? (growth(from, to, 'ffn_tokens_total', {layer: '0'}) || 0) / seconds : 0;
}

const rates = () => scrapes.slice(1).map((scrape, i) => speed(scrapes[i].samples, scrape.samples));

function spark(values) {
  const top = Math.max(...values, 1), step = 240 / (kKept - 2), from = 240 - (values.length - 1) * step;
  const points = values.map((value, i) => `${(from + i * step).toFixed(1)},${(38 - 36 * value / top).toFixed(1)}`);
  return svg('svg', {viewBox: '0 0 240 40', class: 'spark', role: 'img', preserveAspectRatio: 'none', 'aria-label': `Tokens per second in the last minute, at most ${number(top)}`},
             svg('polyline', {points: points.join(' ')}));
}

function figure(name, value, detail = '') {
  return el('div', {class: 'figure'}, el('span', {}, name), el('b', {}, value), detail ? el('small', {}, detail) : null);
}

function latency(name, metric) {
  const {value, fresh} = recent(`${metric}_count`, (from, now) => [0.5, 0.95].map(q => quantile(from, now, metric, q)));
  if (value[0] === null) return null;
  return figure(name, duration(value[0]), `95 %: ${duration(value[1])}${fresh ? '' : ', since the start'}`);
}

function requestFigures(now) {
  const rate = rates(), running = sum(now, 'num_requests_running');
  const {value, fresh} = recent('ffn_tokens_total', speed);
  const all = [figure('Tokens per second', value ? number(value, value < 20 ? 1 : 0) : '…', value ? `while decoding${fresh ? '' : ', since the start'}` : ''),
               latency('Time to first token', 'time_to_first_token_seconds'), latency('Between tokens', 'inter_token_latency_seconds'),
               running === null ? null : figure('Requests', number(running), `${number(sum(now, 'num_requests_waiting') || 0)} wait`)];
  return el('section', {}, el('h3', {}, 'Speed'), el('div', {class: 'figures'}, ...all.filter(Boolean)), rate.length > 1 ? spark(rate) : null);
}

function bar(name, share, detail) {
  return el('div', {class: 'bar'}, el('span', {}, name), el('meter', {min: 0, max: 1, value: share, 'aria-label': name}), el('span', {class: 'amount'}, detail));
}

function section(title, rows, note = '') {
  const real = rows.filter(Boolean);
  if (!real.length) return null;
  return el('section', {}, el('h3', {}, title), ...real, note ? el('p', {class: 'note'}, note) : null);
}

// Where the bytes of feed-forward weights lay that decoding read.
function tiers(now) {
  const {value} = recent('ffn_tier_bytes_total', (from, to) =>
    ['gpu', 'ram', 'flash'].map(tier => [tier, growth(from, to, 'ffn_tier_bytes_total', {tier})]));
  const total = value.reduce((all, [, n]) => all + (n || 0), 0);
  const names = {gpu: 'GPU', ram: 'RAM', flash: 'Flash'};
  const rows = total ? value.filter(([, n]) => n).map(([tier, n]) => bar(names[tier], n / total, percent(n / total))) : [];
  const held = byLabel(now, 'memory_bytes', 'kind'), needed = sum(now, 'flash_needed_neurons_total');
  if (needed) rows.push(bar('Neurons found in memory', sum(now, 'flash_hit_neurons_total') / needed, percent(sum(now, 'flash_hit_neurons_total') / needed)));
  const memory = [...held].filter(([, n]) => n).map(([kind, n]) => `${kind.replace('_', ' ')} ${bytes(n)}`).join(', ');
  const device = labelOf(now, 'device_info', 'device');
  return section('Tiers: bytes of neurons read', rows, [device && `Device: ${device}.`, memory && `Memory: ${memory}.`].filter(Boolean).join(' '));
}

function caches(now) {
  const queries = sum(now, 'prefix_cache_queries_total'), hits = sum(now, 'prefix_cache_hits_total'), used = sum(now, 'kv_cache_usage_ratio');
  return section('Caches', [
    queries ? bar('Prefix cache hits', hits / queries, percent(hits / queries)) : null,
    used === null ? null : bar('KV cache in use', used, percent(used)),
  ], queries ? `${number(hits)} of ${number(queries)} prompt tokens were found in the prefix cache since the start.` : '');
}

function speculation(now) {
  const drafted = sum(now, 'spec_decode_num_draft_tokens_total');
  if (drafted === null) return null;
  const accepted = sum(now, 'spec_decode_num_accepted_tokens_total'), drafts = sum(now, 'spec_decode_num_drafts_total');
  const note = [`Source ${labelOf(now, 'spec_info', 'source')}, mode ${labelOf(now, 'spec_info', 'mode_now') || labelOf(now, 'spec_info', 'mode')}.`,
                drafts ? `${number(1 + accepted / drafts, 2)} tokens a verification.` : 'No drafts yet.'];
  return section('Speculation', [drafted ? bar('Drafted tokens accepted', accepted / drafted, percent(accepted / drafted)) : el('span')], note.join(' '));
}

function draw() {
  const now = scrapes.at(-1).samples;
  const top = byId('live-body').parentElement.scrollTop;
  byId('live-body').replaceChildren(...[requestFigures(now), heatMap(now), tiers(now), speculation(now), caches(now)].filter(Boolean));
  byId('live-body').parentElement.scrollTop = top;
}
