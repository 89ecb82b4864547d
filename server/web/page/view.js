// The messages on the page, and following the end of an answer.
import {copyButton, byId, el, icon, iconButton} from './dom.js';
import {showMarkdown} from './markdown.js';

const kNear = 24;  // pixels from the end that count as the end

let messageActions = {};      // from main.js: edit, regenerate, resume, giveResults
let views = [];        // {message, update} in order
let following = true;  // the end of the answer, unless the user reads above

const log = () => byId('log');

export function setActions(given) {
  messageActions = given;
  log().addEventListener('scroll', () => {
    following = log().scrollHeight - log().scrollTop - log().clientHeight < kNear;
    byId('to-end').hidden = following;
  }, {passive: true});
  byId('to-end').addEventListener('click', () => {
    follow();
    byId('input').focus();
  });
}

export function follow() {
  following = true;
  keepUp();
}

function keepUp() {
  if (following) log().scrollTop = log().scrollHeight;
  byId('to-end').hidden = following;
}

const round = (value, digits = 0) => value.toLocaleString('en', {maximumFractionDigits: digits});

function usageText(usage) {
  if (!usage || !Number.isFinite(usage.prompt_tokens)) return '';
  const cached = usage.cached_tokens ? ` (${round(usage.cached_tokens)} cached)` : '';
  const parts = [`${round(usage.prompt_tokens)} tokens read${cached}`, `${round(usage.completion_tokens)} written`];
  if (usage.reasoning_tokens) parts.push(`${round(usage.reasoning_tokens)} of them reasoning`);
  if (Number.isFinite(usage.first_ms)) parts.push(`first after ${round(usage.first_ms)} ms`);
  if (usage.per_second > 0) parts.push(`${round(usage.per_second, usage.per_second < 20 ? 1 : 0)} tokens/s`);
  if (usage.drafted > 0) parts.push(`${round(usage.accepted)} of ${round(usage.drafted)} drafted tokens accepted`);
  return parts.join(' · ');
}

const kEndings = {
  length: 'The answer reached its limit of tokens.', stopped: 'Stopped.', failed: 'This answer is not complete.',
};

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;  // still being written, or not JSON
  }
}

function callElement(call) {
  const text = prettyJson(call.function.arguments);
  return el('div', {class: 'call'}, el('div', {class: 'code-head'}, el('span', {}, 'Call of ', el('b', {}, call.function.name || '…')), copyButton('Copy arguments', () => text)),
            el('pre', {tabindex: '0', role: 'group', 'aria-label': `Arguments of ${call.function.name}`}, el('code', {}, text)));
}

// Where the user says what the called functions returned.
function resultsForm(calls) {
  const fields = calls.map((call, i) => el('textarea', {rows: 2, class: 'result', 'aria-label': `Result of ${call.function.name}, call ${i + 1}`, placeholder: `What ${call.function.name} returns`}));
  return el('form', {class: 'results', onsubmit: event => {
    event.preventDefault();
    messageActions.giveResults(fields.map(field => field.value));
  }}, ...fields, el('button', {class: 'primary'}, 'Send results'));
}

function editForm(index, message, body) {
  const asks = message.role === 'user';
  const area = el('textarea', {rows: Math.min(12, message.content.split('\n').length + 1), 'aria-label': asks ? 'Edit your message' : 'Edit the answer'});
  area.value = message.content;
  const close = () => { form.replaceWith(body); };
  const accept = () => area.value.trim() && messageActions.edit(index, area.value);
  const form = el('form', {class: 'edit', onsubmit: event => { event.preventDefault(); accept(); }},
                  area, el('div', {class: 'row'}, el('button', {class: 'primary'}, asks ? 'Send' : 'Save'), el('button', {type: 'button', onclick: close}, 'Cancel'),
                           asks ? el('small', {}, 'Messages after this one are removed.') : null));
  area.addEventListener('keydown', event => {
    if (event.key === 'Escape') { event.stopPropagation(); close(); }
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); accept(); }
  });
  body.replaceWith(form);
  area.focus();
}

function actionsFor(index, message, body, last) {
  const bar = el('div', {class: 'actions'}, copyButton('Copy message', () => message.content),
                 iconButton('pencil', message.role === 'user' ? 'Edit and ask again' : 'Edit answer', () => editForm(index, message, body)));
  if (last && message.role === 'assistant') {
    bar.append(iconButton('again', 'Regenerate', () => messageActions.regenerate()));
    const open = message.content && message.ended !== 'stop' && message.ended !== 'tool_calls';
    if (open) bar.append(el('button', {type: 'button', class: 'small', onclick: () => messageActions.resume()}, icon('play'), 'Continue'));
  }
  return bar;
}

function progressElement(run) {
  const line = el('div', {class: 'progress'});
  const bar = el('progress', {'aria-label': 'Prompt read', max: 1});
  const text = el('span');
  line.append(text, bar);
  const update = () => {
    const p = run.progress, reading = run.phase === 'reading' && p;
    bar.hidden = !reading;
    if (reading) Object.assign(bar, {max: p.total, value: p.processed});
    if (reading) text.textContent = `Reading the prompt: ${round(p.processed)} of ${round(p.total)} tokens${p.cache ? `, ${round(p.cache)} cached` : ''}`;
    else if (run.phase === 'writing') text.textContent = run.rate ? `Writing, about ${round(run.rate, run.rate < 20 ? 1 : 0)} tokens/s` : 'Writing';
    else text.textContent = 'Waiting for the server';
  };
  update();
  return {line, update};
}

function reasoningElement(message, running) {
  const text = el('div', {class: 'text'}), summary = el('summary');
  const element = el('details', {class: 'reasoning'}, summary, text);
  return {element, update() {
    element.hidden = !message.reasoning;
    summary.textContent = running && !message.content ? 'Reasoning …' : 'Reasoning';
    if (message.reasoning) showMarkdown(text, message.reasoning);
  }};
}

function assistantView(index, message, last, run) {
  const reasoning = reasoningElement(message, run), body = el('div', {class: 'text'}), calls = el('div');
  const element = el('article', {class: 'message assistant', 'aria-label': 'Answer', 'aria-busy': run ? 'true' : null}, reasoning.element, body, calls);
  const progress = run && progressElement(run);
  let callsShown = '';
  const update = () => {
    reasoning.update();
    showMarkdown(body, message.content);
    const now = JSON.stringify(message.tool_calls || []);
    if (now !== callsShown) calls.replaceChildren(...(message.tool_calls || []).map(callElement));
    callsShown = now;
    if (progress) progress.update();
  };
  update();
  if (run) return element.append(progress.line), {message, element, update};
  if (last && message.tool_calls) element.append(resultsForm(message.tool_calls));
  const ending = kEndings[message.ended] || (last && !message.ended ? kEndings.stopped : '');
  if (ending) element.append(el('p', {class: 'ending'}, ending));
  const usage = usageText(message.usage);
  element.append(el('div', {class: 'foot'}, actionsFor(index, message, body, last), usage ? el('span', {class: 'usage'}, usage) : null));
  return {message, element, update};
}

function plainView(index, message, run) {
  const body = el('div', {class: 'plain'}, message.content);
  const user = message.role === 'user';
  const element = el('article', {class: `message ${message.role}`, 'aria-label': user ? 'You' : 'Result of a tool'}, user ? null : el('div', {class: 'label'}, 'Result'), body);
  if (user && !run) element.append(el('div', {class: 'foot'}, actionsFor(index, message, body, false)));
  return {message, element, update() {}};
}

// Shows a chat; `run` if its last answer is being written.
export function showMessages(chat, run, failure) {
  const count = chat.messages.length;
  views = chat.messages.map((message, i) => message.role === 'assistant'
    ? assistantView(i, message, i === count - 1, run && run.message === message ? run : null)
    : plainView(i, message, run));
  byId('messages').replaceChildren(...views.map(view => view.element));
  byId('welcome').hidden = count > 0;
  showFailure(chat, run, failure);
  keepUp();
}

function showFailure(chat, run, failure) {
  const last = chat.messages.at(-1);
  const unanswered = !run && last && last.role !== 'assistant';
  byId('failure').hidden = !failure && !unanswered;
  byId('failure-text').textContent = failure ? failure.message : unanswered ? 'This message has no answer yet.' : '';
  byId('failure').classList.toggle('bad', Boolean(failure));
  byId('failure-again').hidden = !unanswered;
  byId('failure-again').textContent = failure ? 'Try again' : 'Answer it';
}

let asked = false;

// The running answer has grown. At most once a frame.
export function grewView() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    if (views.length) views.at(-1).update();
    keepUp();
  });
}
