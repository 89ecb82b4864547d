// Settings: kept in the browser, shown in a dialog, turned into fields of a request.
import {byId, el} from './dom.js';

const kKey = 'thermocline.settings';
// Label, least, most, step, hint. Those of sampling come in front, from the description of the API.
const kNumbers = {
  max_tokens: ['Max tokens', 1, 2147483647, 1, 'length of an answer at most'],
  seed: ['Seed', 0, 9007199254740991, 1, 'the same seed gives the same text'],
};
let numbers = kNumbers;
const kChoices = {
  ffn_mode: ['Feed-forward mode', {'': "the server's", dense: 'dense: all neurons', exact: 'exact: skip zeros, no loss', sign: 'sign: predicted neurons', lowrank: 'lowrank: predicted neurons', threshold: 'threshold: small ones left out', inputs: 'inputs: small inputs left out'}],
  speculation: ['Speculation', {'': "the server's", off: 'off', sync: 'sync', branch: 'branch', exhaustive: 'exhaustive', auto: 'auto'}],
  thinking: ['Reasoning', {'': "the model's", on: 'on', off: 'off'}],
  tool_choice: ['Use of tools', {'': 'auto', required: 'required', none: 'none'}],
};

let values = {};
try {
  values = JSON.parse(localStorage.getItem(kKey)) || {};
} catch {}

export const setting = name => values[name];

export function changeSetting(name, value) {
  values[name] = value;
  try {
    localStorage.setItem(kKey, JSON.stringify(values));
  } catch {}  // not kept, but it holds for this page
}

// Fields of a chat request. Absent ones are left to the server.
export function requestFields() {
  const fields = {}, extension = {};
  for (const name of Object.keys(numbers)) if (Number.isFinite(values[name])) fields[name] = values[name];
  for (const name of ['ffn_mode', 'speculation']) if (values[name]) extension[name] = values[name];
  if (Object.keys(extension).length) fields.x_thermocline = extension;
  if (values.thinking) fields.enable_thinking = values.thinking === 'on';
  const tools = parseTools(values.tools || '');
  if (tools.list.length) {
    fields.tools = tools.list;
    if (values.tool_choice) fields.tool_choice = values.tool_choice;
  }
  return fields;
}

// {list, error}. A single function without its frame is taken, too.
function parseTools(text) {
  if (!text.trim()) return {list: [], error: ''};
  let list = null;
  try {
    list = JSON.parse(text);
  } catch (error) {
    return {list: [], error: `The tools are not JSON: ${error.message}`};
  }
  if (!Array.isArray(list)) list = [list];
  list = list.map(tool => tool && tool.name && !tool.function ? {type: 'function', function: tool} : tool);
  const bad = list.findIndex(tool => !tool || tool.type !== 'function' || !tool.function || typeof tool.function.name !== 'string');
  if (bad < 0) return {list, error: ''};
  return {list: [], error: `Tool ${bad + 1} has no "function" with a "name".`};
}

function numberField(name, defaults) {
  const [label, min, max, step, hint] = numbers[name];
  const known = defaults[name];
  return el('label', {class: 'field'}, el('span', {}, label),
            el('input', {id: `set-${name}`, type: 'number', inputmode: 'decimal', min, max, step, placeholder: known === undefined ? "server's" : String(known), 'aria-describedby': `hint-${name}`}),
            el('small', {id: `hint-${name}`}, hint));
}

function choiceField(name, offered) {
  const [label, all] = kChoices[name];
  const options = Object.fromEntries(Object.entries(all).filter(([value]) => !value || !offered || offered.includes(value)));
  return el('label', {class: 'field'}, el('span', {}, label),
            el('select', {id: `set-${name}`}, ...Object.entries(options).map(([value, text]) => el('option', {value}, text))));
}

const numbersOf = properties => Object.fromEntries(
  Object.entries(properties).filter(([, of]) => of['x-step'])
    .map(([name, of]) => [name, [of.title, of.minimum, of.maximum, of['x-step'], of.description.split('. ')[0]]]));

// What the server would take where a field is left empty, and the modes that it can compute, from
// /v1/models; the properties of a chat's request, from /openapi.json. A mode that was chosen with
// another model is forgotten.
export function buildSettings(defaults, modes, properties = {}) {
  numbers = {...numbersOf(properties), ...kNumbers};
  byId('numbers').replaceChildren(...Object.keys(numbers).map(name => numberField(name, defaults)));
  byId('choices').replaceChildren(...Object.keys(kChoices).map(name => choiceField(name, name === 'ffn_mode' ? modes : null)));
  if (modes && values.ffn_mode && !modes.includes(values.ffn_mode)) changeSetting('ffn_mode', undefined);
}

export function openSettings(chat) {
  for (const name of Object.keys(numbers)) byId(`set-${name}`).value = values[name] ?? '';
  for (const name of Object.keys(kChoices)) byId(`set-${name}`).value = values[name] || '';
  byId('set-tools').value = values.tools || '';
  byId('set-system').value = chat.system;
  showToolsError('');
  byId('settings').showModal();
}

function showToolsError(text) {
  byId('tools-error').textContent = text;
  byId('set-tools').setAttribute('aria-invalid', text ? 'true' : 'false');
}

// Takes over what the dialog says. False: something in it is wrong, and marked.
export function acceptSettings(chat) {
  if (!byId('settings-form').reportValidity()) return false;
  const error = parseTools(byId('set-tools').value).error;
  showToolsError(error);
  if (error) {
    byId('set-tools').focus();
    return false;
  }
  for (const name of Object.keys(numbers)) {
    const text = byId(`set-${name}`).value;
    changeSetting(name, text === '' ? undefined : Number(text));
  }
  for (const name of Object.keys(kChoices)) changeSetting(name, byId(`set-${name}`).value || undefined);
  changeSetting('tools', byId('set-tools').value.trim() || undefined);
  chat.system = byId('set-system').value.trim();
  changeSetting('system', chat.system || undefined);
  return true;
}

export function resetSettings() {
  for (const control of byId('settings-form').querySelectorAll('input, select, textarea')) control.value = '';
  showToolsError('');
}
