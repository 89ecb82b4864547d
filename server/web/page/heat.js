// The layers' heat map: active share, precision and recall of predictors, bytes read.
import {el} from './dom.js';
import {byLabel, labelOf} from './metrics.js';

const kSteps = 10;  // shades in panels.css

const ratio = (a, b) => {
  const out = new Map();
  for (const [layer, all] of b) if (all > 0) out.set(layer, (a.get(layer) || 0) / all);
  return out;
};

const added = maps => {
  const out = new Map();
  for (const map of maps) for (const [key, value] of map) out.set(key, (out.get(key) || 0) + value);
  return out;
};

// Of audited tokens where layers predict; in mode exact the rows of up are those of active neurons,
// and the gate's are all.
function activeShare(now) {
  const audited = outcomes => added(outcomes.map(outcome => byLabel(now, 'predictor_neurons_total', 'layer', {outcome})));
  const share = ratio(audited(['tp', 'fn']), audited(['tp', 'fn', 'fp', 'tn']));
  const rows = part => byLabel(now, 'ffn_rows_read_total', 'layer', {part});
  const exact = byLabel(now, 'ffn_mode', 'layer', {mode: 'exact'}), computed = ratio(rows('up'), rows('gate'));
  for (const [layer, value] of computed) if (!share.has(layer) && exact.get(layer) === 1) share.set(layer, value);
  return share;
}

// The gauge has a series for each mode; a layer's own comes before those of shadows.
function gauge(now, name) {
  const out = new Map();
  const list = [...(now.get(name) || [])].sort((a, b) => (b.labels.mode || '').startsWith('shadow') - (a.labels.mode || '').startsWith('shadow'));
  for (const {labels, value} of list) out.set(labels.layer, value);
  return out;
}

function cell(name, layer, value) {
  if (value === undefined) return el('td', {class: 'none'}, el('span', {class: 'unseen'}, 'none'));
  const percent = Math.round(value * 100);
  const shade = Math.max(0, Math.min(kSteps - 1, Math.floor(value * kSteps)));
  return el('td', {class: `heat heat${shade}`, title: `Layer ${layer}: ${name} ${percent} %`}, String(percent));
}

// Null where there is nothing to show.
export function heatMap(now) {
  const shadow = labelOf(now, 'predictor_precision', 'mode').startsWith('shadow');
  const columns = [
    ['Active', activeShare(now)],
    ['Bytes read', ratio(byLabel(now, 'ffn_bytes_read_total', 'layer'), byLabel(now, 'ffn_dense_bytes_total', 'layer'))],
    ['Precision', gauge(now, 'predictor_precision')],
    ['Recall', gauge(now, 'predictor_recall')],
  ].filter(([, values]) => values.size);
  if (!columns.length) return null;
  const layers = [...new Set(columns.flatMap(([, values]) => [...values.keys()]))].sort((a, b) => a - b);
  const mode = layer => [...byLabel(now, 'ffn_mode', 'mode', {layer})].filter(([, on]) => on === 1).map(([name]) => name)[0] || '';
  const head = el('tr', {}, ...['Layer', ...columns.map(([name]) => name), 'Mode'].map(name => el('th', {scope: 'col'}, name)));
  const rows = layers.map(layer => el('tr', {}, el('th', {scope: 'row'}, layer), ...columns.map(([name, values]) => cell(name, layer, values.get(layer))), el('td', {class: 'mode'}, mode(layer))));
  return el('section', {}, el('h3', {}, 'Layers, in percent'),
            el('div', {class: 'heat-frame', tabindex: '0', role: 'group', 'aria-label': 'Layers'}, el('table', {class: 'heat-map'}, el('thead', {}, head), el('tbody', {}, ...rows))),
            el('p', {class: 'note'}, 'Active: neurons that are not zero. Bytes read: of what a dense step reads. Since the start.' +
               (shadow ? ' The predictor runs beside the exact computation and skips nothing.' : '')));
}
