// One answer: the request, and the stream that fills a message.
import {Failure, call, readEvents} from './api.js';
import {modelFields} from './models.js';
import {requestFields} from './settings.js';

// What the API is told of a chat. Every call of a tool gets a result: templates want one.
function historyOf(chat, messages) {
  const out = chat.system ? [{role: 'system', content: chat.system}] : [];
  messages.forEach((message, i) => {
    if (message.role === 'tool') return;  // behind their calls, below
    if (message.role === 'user') return out.push({role: 'user', content: message.content});
    const calls = message.tool_calls || [];
    if (!message.content && !calls.length) return;
    const said = {role: 'assistant', content: message.content};
    if (message.reasoning) said.reasoning_content = message.reasoning;
    if (calls.length) said.tool_calls = calls;
    out.push(said);
    const results = messages.slice(i + 1);
    const end = results.findIndex(m => m.role !== 'tool');
    const given = end < 0 ? results : results.slice(0, end);
    calls.forEach((call_, c) => out.push({role: 'tool', tool_call_id: call_.id, content: given[c] ? given[c].content : '(no result)'}));
  });
  return out;
}

export const isEmpty = message => !message.content && !message.reasoning && !(message.tool_calls || []).length;

// A call comes as its name first, then as pieces of its arguments.
function addCalls(message, deltas) {
  message.tool_calls = message.tool_calls || [];
  for (const delta of deltas) {
    const at = message.callsBefore + delta.index;
    message.tool_calls[at] = message.tool_calls[at] || {id: '', type: 'function', function: {name: '', arguments: ''}};
    const made = message.tool_calls[at], f = delta.function || {};
    if (delta.id) made.id = delta.id;
    if (f.name) made.function.name += f.name;
    if (f.arguments) made.function.arguments += f.arguments;
  }
}

function takeEnd(run, event) {
  const {usage, timings} = event, figures = run.message.usage = run.message.usage || {};
  if (usage) {
    figures.prompt_tokens = usage.prompt_tokens;
    figures.completion_tokens = usage.completion_tokens;
    figures.cached_tokens = (usage.prompt_tokens_details || {}).cached_tokens;
    figures.reasoning_tokens = (usage.completion_tokens_details || {}).reasoning_tokens;
  }
  if (!timings) return;
  figures.per_second = timings.predicted_per_second;
  figures.drafted = timings.draft_n;
  figures.accepted = timings.draft_n_accepted;
}

function takeDelta(run, delta) {
  const {message} = run;
  if (delta.content) message.content += delta.content;
  if (delta.reasoning_content) message.reasoning = (message.reasoning || '') + delta.reasoning_content;
  if (delta.tool_calls) addCalls(message, delta.tool_calls);
  if (!delta.content && !delta.reasoning_content && !delta.tool_calls) return;
  const now = performance.now();
  if (!run.pieces) run.first = now;
  ++run.pieces;
  run.phase = 'writing';
  // Of pieces, which are tokens unless drafts are accepted; the exact rate comes with the end.
  run.rate = now - run.first > 250 ? (run.pieces - 1) * 1000 / (now - run.first) : 0;
}

function takeEvent(run, event) {
  if (event.prompt_progress && !run.pieces) {
    run.phase = 'reading';
    run.progress = event.prompt_progress;
  }
  const choice = event.choices && event.choices[0];
  if (choice) {
    takeDelta(run, choice.delta || {});
    if (choice.finish_reason) run.message.ended = choice.finish_reason;
  }
  takeEnd(run, event);
}

// Fills run.message. Throws a Failure, or an AbortError if run.controller was used.
export async function streamAnswer(run, resume, onChange) {
  const {chat, message} = run;
  const before = chat.messages.slice(0, chat.messages.indexOf(message) + (resume ? 1 : 0));
  const body = {
    messages: historyOf(chat, before), stream: true, stream_options: {include_usage: true}, return_progress: true, ...requestFields(), ...modelFields(),
  };
  if (resume) body.continue_final_message = true;
  Object.defineProperty(message, 'callsBefore', {value: (message.tool_calls || []).length, configurable: true});
  delete message.ended;
  const begin = performance.now();
  const response = await call('/v1/chat/completions', {
    method: 'POST', signal: run.controller.signal, headers: {'content-type': 'application/json'}, body: JSON.stringify(body),
  });
  await readEvents(response, event => {
    takeEvent(run, event);
    onChange();
  });
  if (message.usage && run.pieces) message.usage.first_ms = run.first - begin;
  if (isEmpty(message)) throw new Failure('The model gave an empty answer.');
}
