// The list of chats: search, open, rename, delete, export, import.
import {announce, byId, confirmed, download, el, iconButton} from './dom.js';
import {allChats, chatMatches, exportText, importText, loadChat, removeAllChats, removeChat, saveChat} from './store.js';

let listActions = {};  // from main.js: current, open, removed, renamed, notice
let drawing = 0;
let renaming = false;  // a row is an input: what draws the list waits for its end

export function setChatActions(given) {
  listActions = given;
  byId('search').addEventListener('input', drawChats);
  byId('export').addEventListener('click', exportAll);
  byId('import').addEventListener('click', () => byId('import-file').click());
  byId('import-file').addEventListener('change', importFile);
  byId('delete-all').addEventListener('click', deleteAll);
}

function dayOf(time) {
  const date = new Date(time), today = new Date();
  if (date.toDateString() === today.toDateString()) return date.toLocaleTimeString([], {hour: '2-digit', minute: '2-digit'});
  return date.toLocaleDateString([], {day: 'numeric', month: 'short', year: date.getFullYear() === today.getFullYear() ? undefined : 'numeric'});
}

async function rename(chat, row) {
  const input = el('input', {value: chat.title, 'aria-label': 'New title', maxlength: 200});
  let over = false;
  const end = async keep => {
    if (over) return;
    over = true;
    renaming = false;
    const title = input.value.trim();
    if (keep && title && title !== chat.title) {
      const stored = await loadChat(chat.id);
      if (stored) await saveChat({...stored, title});
      listActions.renamed(chat.id, title);
    }
    await drawChats();
    const button = byId('chats').querySelector(`[data-id="${CSS.escape(chat.id)}"] .open`);
    if (button) button.focus();
  };
  input.addEventListener('keydown', event => {
    event.stopPropagation();
    if (event.key === 'Enter') end(true);
    if (event.key === 'Escape') { event.preventDefault(); end(false); }
  });
  input.addEventListener('blur', () => end(true));
  renaming = true;
  row.replaceChildren(input);
  input.focus();
  input.select();
}

async function remove(chat) {
  if (!await confirmed(`Delete the chat “${chat.title}”? It cannot be brought back.`, 'Delete')) return;
  listActions.removed(chat.id);
  await removeChat(chat.id);
  announce('Deleted');
  await drawChats();
  byId('search').focus();
}

async function deleteAll() {
  const count = (await allChats()).length;
  if (!await confirmed(`Delete all ${count} chats of this browser? They cannot be brought back.`, 'Delete all')) return;
  listActions.removed(null);
  await removeAllChats();
  announce('All chats deleted');
  await drawChats();
}

const fileName = chat => (chat.title.replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 40) || 'chat') + '.json';

async function exportAll() {
  download('thermocline-chats.json', exportText(await allChats()));
}

async function importFile(event) {
  const file = event.target.files[0];
  event.target.value = '';
  if (!file) return;
  try {
    const count = await importText(await file.text());
    listActions.notice(count === 1 ? '1 chat imported.' : `${count} chats imported.`);
  } catch (error) {
    listActions.notice(error.message);
  }
  await drawChats();
}

function rowOf(chat) {
  const current = chat.id === listActions.current();
  const open = el('button', {type: 'button', class: 'open', 'aria-current': current ? 'true' : null, onclick: () => listActions.open(chat.id)},
                  el('span', {class: 'title'}, chat.title || 'Untitled'), el('span', {class: 'time'}, dayOf(chat.updated)));
  const row = el('li', {'data-id': chat.id, class: current ? 'current' : null}, open);
  const title = chat.title || 'Untitled';
  row.append(el('span', {class: 'tools'}, iconButton('pencil', `Rename ${title}`, () => rename(chat, row)),
                iconButton('save', `Export ${title}`, () => download(fileName(chat), exportText([chat]))),
                iconButton('bin', `Delete ${title}`, () => remove(chat))));
  return row;
}

// True: there are chats.
export async function drawChats() {
  const mine = ++drawing, words = byId('search').value.trim();
  const chats = await allChats();
  if (mine !== drawing || renaming) return chats.length > 0;  // a later one draws
  const found = words ? chats.filter(chat => chatMatches(chat, words)) : chats;
  byId('chats').replaceChildren(...found.map(rowOf));
  byId('no-chats').hidden = found.length > 0;
  byId('no-chats').textContent = words ? 'No chat has these words.' : 'Chats are kept in this browser.';
  byId('found').textContent = words ? `${found.length} of ${chats.length} chats` : '';
  for (const id of ['export', 'delete-all']) byId(id).disabled = !chats.length;
  return chats.length > 0;
}
