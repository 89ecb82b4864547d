// The chats, in the browser's IndexedDB. Where there is none (private windows of some browsers)
// they last as long as the page.

const kDatabase = 'thermocline', kChats = 'chats';
const kRoles = new Set(['user', 'assistant', 'tool']);

let database = null;
const memory = new Map();

const settled = request => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

// False: chats will not outlive the page.
export async function openStore() {
  try {
    const request = indexedDB.open(kDatabase, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(kChats, {keyPath: 'id'});
    database = await settled(request);
    return true;
  } catch {
    return false;
  }
}

const chatsOf = mode => database.transaction(kChats, mode).objectStore(kChats);

export async function saveChat(chat) {
  const copy = cleanChat(chat);
  if (database) await settled(chatsOf('readwrite').put(copy));
  else memory.set(chat.id, copy);
}

export async function loadChat(id) {
  const chat = database ? await settled(chatsOf('readonly').get(id)) : memory.get(id);
  return chat ? cleanChat(chat) : null;
}

export async function removeChat(id) {
  if (database) await settled(chatsOf('readwrite').delete(id));
  memory.delete(id);
}

export async function removeAllChats() {
  if (database) await settled(chatsOf('readwrite').clear());
  memory.clear();
}

// All of them, the newest first.
export async function allChats() {
  const chats = database ? await settled(chatsOf('readonly').getAll()) : [...memory.values()];
  return chats.sort((a, b) => b.updated - a.updated);
}

// What a search looks through.
export function chatMatches(chat, words) {
  const text = [chat.title, ...chat.messages.map(message => message.content)].join('\n').toLowerCase();
  return words.toLowerCase().split(/\s+/).every(word => text.includes(word));
}

function newId() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map(byte => byte.toString(16).padStart(2, '0')).join('');
}

export function newChat(system = '') {
  const now = Date.now();
  return {id: newId(), title: '', created: now, updated: now, system, messages: []};
}

const textOf = value => typeof value === 'string' ? value : '';
const timeOf = value => Number.isFinite(value) ? value : Date.now();

function cleanCall(call) {
  const f = call && call.function;
  return {id: textOf(call && call.id), type: 'function', function: {name: textOf(f && f.name), arguments: textOf(f && f.arguments)}};
}

function cleanUsage(usage) {
  const out = {};
  for (const [name, value] of Object.entries(usage || {})) if (Number.isFinite(value)) out[name] = value;
  return out;
}

function cleanMessage(message) {
  const out = {role: message.role, content: textOf(message.content)};
  if (message.role === 'tool') out.tool_call_id = textOf(message.tool_call_id);
  if (message.role !== 'assistant') return out;
  if (textOf(message.reasoning)) out.reasoning = message.reasoning;
  if (Array.isArray(message.tool_calls) && message.tool_calls.length) out.tool_calls = message.tool_calls.map(cleanCall);
  if (textOf(message.ended)) out.ended = message.ended;  // stop, length, tool_calls, stopped, failed
  if (message.usage && typeof message.usage === 'object') out.usage = cleanUsage(message.usage);
  return out;
}

// A chat of just the members that there are, whatever a file had; null: it is none.
function cleanChat(chat) {
  if (!chat || typeof chat !== 'object' || !Array.isArray(chat.messages)) return null;
  const messages = chat.messages.filter(message => message && kRoles.has(message.role)).map(cleanMessage);
  return {
    id: textOf(chat.id) || newId(), title: textOf(chat.title).slice(0, 200), created: timeOf(chat.created),
    updated: timeOf(chat.updated), system: textOf(chat.system), messages,
  };
}

export function exportText(chats) {
  return JSON.stringify({format: 'thermocline-chats', version: 1, chats: chats.map(cleanChat)}, null, 1) + '\n';
}

// Adds the chats of a file. A chat that is here, too, is replaced if the file's is newer.
export async function importText(text) {
  let file = null;
  try {
    file = JSON.parse(text);
  } catch {}
  if (!file || file.format !== 'thermocline-chats' || !Array.isArray(file.chats))
    throw new Error('This file has no exported chats: a JSON object with "format": "thermocline-chats" is expected.');
  if (file.version !== 1) throw new Error(`The file has version ${file.version} of the format; this page reads version 1.`);
  let count = 0;
  for (const chat of file.chats.map(cleanChat)) {
    const here = chat && await loadChat(chat.id);
    if (!chat || (here && here.updated >= chat.updated)) continue;
    await saveChat(chat);
    ++count;
  }
  return count;
}
