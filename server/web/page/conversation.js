// The open chat and the answers that are being made. An answer belongs to the chat that it was asked
// in: it goes on while another one is shown, which never gets its text.
import {isEmpty, streamAnswer} from './answer.js';
import {announce} from './dom.js';
import {setting} from './settings.js';
import {loadChat, newChat, saveChat} from './store.js';

const kSaveMs = 2000;  // while an answer grows

const runs = new Map();  // by the chat's id

// run: the open chat's answer, if one is being made.
export const state = {
  chat: newChat(setting('system') || ''),
  failure: null,
  get run() { return runs.get(this.chat.id) || null; },
};

// Set by main.js. shown: another chat or other messages; grew: the running answer; saved: the list.
export const hooks = {shown() {}, grew() {}, saved() {}, notice() {}};

export async function save(chat) {
  if (!chat.messages.length || chat.removed) return;
  try {
    await saveChat(chat);
    if (chat.removed) return;
    hooks.saved();
  } catch (error) {
    hooks.notice(`The browser could not keep this chat: ${error.message}`);
  }
}

function titleOf(text) {
  const line = text.trim().split('\n')[0];
  return line.length > 60 ? line.slice(0, 59).trimEnd() + '…' : line;
}

function noteEnd(run, error) {
  const {message, chat} = run;
  const stopped = error && error.name === 'AbortError';
  if (error) message.ended = stopped ? 'stopped' : 'failed';
  if (isEmpty(message)) chat.messages.splice(chat.messages.indexOf(message), 1);
  chat.updated = Date.now();
  if (runs.get(chat.id) === run) runs.delete(chat.id);
  if (state.chat !== chat) {
    if (error && !stopped && !chat.removed) hooks.notice(`The answer in “${chat.title}” failed: ${error.message}`);
    return;
  }
  state.failure = error && !stopped ? error : null;
  hooks.shown();
  const text = message.content.length > 400 ? message.content.slice(0, 400) + '…' : message.content;
  announce(error ? (stopped ? 'Stopped.' : '') : `Answer: ${text}`);
}

async function answer(resume = false) {
  const {chat} = state;
  const message = resume ? chat.messages.at(-1) : {role: 'assistant', content: ''};
  if (!resume) chat.messages.push(message);
  const run = {chat, message, controller: new AbortController(), phase: 'waiting', progress: null, pieces: 0, rate: 0};
  runs.set(chat.id, run);
  state.failure = null;
  hooks.shown();
  announce('The answer is being written.');
  let failure = null, saved = performance.now();
  try {
    save(chat);
    await streamAnswer(run, resume, () => {
      if (state.run === run) hooks.grew(run);
      if (performance.now() - saved < kSaveMs) return;
      saved = performance.now();
      save(chat);
    });
  } catch (error) {
    failure = error;
  }
  noteEnd(run, failure);
  await save(chat);
}

// False: an answer is being written.
export function ask(text) {
  if (state.run) return false;
  const {chat} = state;
  chat.title = chat.title || titleOf(text);
  chat.messages.push({role: 'user', content: text});
  chat.updated = Date.now();
  answer();
  return true;
}

export function stop() {
  if (state.run) state.run.controller.abort();
}

// The answer of a chat that is removed; of every one, for null.
export function abandon(id) {
  for (const run of [...runs.values()]) {
    if (id !== null && run.chat.id !== id) continue;
    run.chat.removed = true;
    run.controller.abort();
  }
}

// Answers the last question again, or for the first time.
export function regenerate() {
  if (state.run) return;
  const {messages} = state.chat;
  if (messages.at(-1).role === 'assistant') messages.pop();
  answer();
}

export function resume() {
  if (!state.run) answer(true);
}

// A question that is changed is asked again, without what came behind it; an answer is just changed.
export function edit(index, text) {
  if (state.run) return;
  const {chat} = state, message = chat.messages[index];
  message.content = text;
  chat.updated = Date.now();
  if (message.role === 'user') {
    chat.messages.length = index + 1;
    return answer();
  }
  hooks.shown();
  save(chat);
}

// Results of the last answer's calls, one each.
export function giveResults(results) {
  if (state.run) return;
  const {messages} = state.chat, calls = messages.at(-1).tool_calls;
  results.forEach((content, i) => messages.push({role: 'tool', tool_call_id: calls[i].id, content}));
  answer();
}

function show(chat) {
  state.chat = chat;
  state.failure = null;
  hooks.shown();
}

export const startNew = () => show(newChat(setting('system') || ''));

export async function openStored(id) {
  if (id === state.chat.id) return;
  const chat = runs.has(id) ? runs.get(id).chat : await loadChat(id);
  if (chat) show(chat);
}
