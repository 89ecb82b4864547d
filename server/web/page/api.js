// Calls of the server: the key, errors in words, streams.
import {askForKey} from './key.js';

const kStorage = 'thermocline.key';

let key = '';
try {
  key = sessionStorage.getItem(kStorage) || localStorage.getItem(kStorage) || '';
} catch {}

// Kept for this tab, or on this device if asked to.
function setKey(value, keep) {
  key = value;
  try {
    sessionStorage.setItem(kStorage, value);
    if (keep) localStorage.setItem(kStorage, value);
    else localStorage.removeItem(kStorage);
  } catch {}
}

// An error whose message a person can act on.
export class Failure extends Error {
  constructor(message, details = {}) {
    super(message);
    Object.assign(this, {status: 0, code: '', retryAfter: 0, ...details});
  }
}

function wordsFor(status, error, retryAfter) {
  const said = (error && error.message) || `The server answered with status ${status}.`;
  const wait = retryAfter ? ` Try again in ${retryAfter} s.` : '';
  if (error && error.code === 'context_length_exceeded')
    return `This chat is too long for the model: ${error.n_prompt_tokens} tokens, and its context holds ${error.n_ctx}. Begin a new chat, or shorten an earlier message.`;
  if (status === 429) return `The server is busy.${wait || ' Try again later.'} (${said})`;
  if (status === 503) return `The server is not ready.${wait} (${said})`;
  if (status === 504) return `The server's time for an answer has passed. (${said})`;
  if (status === 413) return 'This chat is larger than the server accepts. Begin a new chat.';
  if (status === 403) return `The server refuses this page. (${said})`;
  if (status >= 500) return `The server failed. (${said})`;
  return said.charAt(0).toUpperCase() + said.slice(1);
}

async function failureOf(response) {
  let error = null;
  try {
    error = (await response.json()).error;
  } catch {}  // a proxy's page
  const retryAfter = Number(response.headers.get('retry-after')) || 0;
  const id = response.headers.get('x-request-id');
  const words = wordsFor(response.status, error, retryAfter);
  const message = response.status >= 500 && id ? `${words} Request ${id}.` : words;
  return new Failure(message, {status: response.status, code: (error && error.code) || '', retryAfter});
}

async function sendRequest(path, options) {
  const headers = {...(options.headers || {}), ...(key ? {authorization: `Bearer ${key}`} : {})};
  try {
    return await fetch(path, {...options, headers});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Failure('The server cannot be reached. Is it running, and is the network up?');
  }
}

async function askAgain(refused) {
  const given = await askForKey(refused);
  if (!given) throw new Failure('This server needs a key. The next message asks for it again.', {status: 401});
  setKey(given.key, given.keep);
}

// The response, if it is a good one. A key is asked for where one is needed, unless `quiet`.
export async function call(path, options = {}, quiet = false) {
  for (;;) {
    const used = key;
    const response = await sendRequest(path, options);
    if (response.ok) return response;
    const failure = await failureOf(response);
    if (response.status !== 401 || quiet) throw failure;
    if (used === key) await askAgain(used !== '');
    if (options.signal && options.signal.aborted) throw new DOMException('stopped', 'AbortError');
  }
}

// Reads server-sent events as they come. Comments (": keep-alive") are left out.
export async function readEvents(response, onEvent) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '', done = false;
  while (!done) {
    let piece = null;
    try {
      piece = await reader.read();
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new Failure('The connection broke before the answer was complete.');
    }
    if (piece.done) throw new Failure('The connection ended before the answer was complete.');
    const lines = (rest + piece.value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data:')) continue;
      const data = line.slice(5).trim();
      if (data === '[DONE]') done = true;
      else onEvent(eventOf(data));
    }
  }
}

function eventOf(data) {
  const event = JSON.parse(data);
  if (!event.error) return event;
  const status = Number(event.error.status) || 0;
  throw new Failure(wordsFor(status, event.error, 0), {code: event.error.code || ''});
}
