// Wires the page: what is typed and clicked, the model's name, the theme.
import {call} from './api.js';
import {drawChats, setChatActions} from './chats.js';
import {abandon, ask, edit, giveResults, hooks, openStored, regenerate, resume, save, startNew, state, stop} from './conversation.js';
import {byId, el, icon} from './dom.js';
import {showLive} from './live.js';
import {chosenModel, readModels} from './models.js';
import {acceptSettings, buildSettings, changeSetting, openSettings, resetSettings, setting} from './settings.js';
import {openStore} from './store.js';
import {follow, grewView, setActions, showMessages} from './view.js';

// A model of stories knows no facts and no code.
const kStories = ['Tell me a story about an owl.', 'Tell me a story about a boy who finds a key.', 'Tell me a story about a cold winter.'];
const kQuestions = ['Tell me a story about an owl.', 'Explain in three points why the sky is blue.', 'Write a Python function that reverses a string.'];
const kStoryParameters = 50e6;  // a model with fewer tells stories at most
const kRetryMs = 1000;

const input = byId('input');

function notice(text) {
  byId('notice-text').textContent = text;
  byId('notice').hidden = false;
}

function redraw() {
  showMessages(state.chat, state.run, state.failure);
  byId('send').hidden = Boolean(state.run);
  byId('stop').hidden = !state.run;
  byId('hint').textContent = state.run ? 'Escape stops the answer.' : 'Enter sends, Shift+Enter begins a new line.';
  document.title = state.chat.title ? `${state.chat.title} – Thermocline` : 'Thermocline';
}

function fitInput() {
  input.style.height = 'auto';
  input.style.height = `${Math.min(input.scrollHeight, innerHeight * 0.4)}px`;
}

function send(text) {
  if (!text.trim()) return;
  if (state.run) {  // what was typed stays
    byId('hint').textContent = 'The answer is still being written: wait for it, or stop it with Escape.';
    return;
  }
  input.value = '';
  fitInput();
  follow();
  ask(text.trim());
}

function leaveSidebar() {
  byId('sidebar').classList.remove('open');
  byId('chats-toggle').setAttribute('aria-expanded', 'false');
}

function openSidebar(open) {
  byId('sidebar').classList.toggle('open', open);
  byId('chats-toggle').setAttribute('aria-expanded', String(open));
  if (open) byId('search').focus();
}

function beginChat() {
  leaveSidebar();
  follow();
  startNew();
  drawChats();
  input.focus();
}

async function openChat(id) {
  leaveSidebar();
  follow();
  await openStored(id);
  drawChats();
  input.focus();
}

function editLast() {
  const buttons = document.querySelectorAll('.message.user .actions [aria-label="Edit and ask again"]');
  if (buttons.length) buttons[buttons.length - 1].click();
}

function wireInput() {
  byId('form').addEventListener('submit', event => { event.preventDefault(); send(input.value); });
  input.addEventListener('input', fitInput);
  input.addEventListener('keydown', event => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(input.value); }
    if (event.key === 'ArrowUp' && !input.value && !state.run) { event.preventDefault(); editLast(); }
  });
  byId('stop').addEventListener('click', () => { stop(); input.focus(); });
  byId('failure-again').addEventListener('click', () => { regenerate(); input.focus(); });
}

function showExamples(model) {
  const texts = model.meta && model.meta.n_params < kStoryParameters ? kStories : kQuestions;
  byId('examples').replaceChildren(...texts.map(text => el('li', {}, el('button', {type: 'button', onclick: () => send(text)}, text))));
}

const kShortcuts = {
  KeyN: beginChat,
  KeyK: () => openSidebar(true),
  KeyL: () => showLive(byId('live').hidden),
};

function wireKeys() {
  document.addEventListener('keydown', event => {
    const dialog = document.querySelector('dialog[open]');
    if (dialog) return;
    if (event.key === 'Escape' && byId('sidebar').classList.contains('open')) return openSidebar(false), byId('chats-toggle').focus();
    if (event.key === 'Escape' && state.run) return stop();
    const action = event.altKey && !event.ctrlKey && !event.metaKey && kShortcuts[event.code];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function wireSettings() {
  const close = () => byId('settings').close();
  byId('settings-open').addEventListener('click', () => openSettings(state.chat));
  byId('settings-close').addEventListener('click', close);
  byId('settings-reset').addEventListener('click', resetSettings);
  byId('settings-form').addEventListener('submit', event => {
    event.preventDefault();
    if (!acceptSettings(state.chat)) return;
    save(state.chat);
    close();
  });
}

const kThemes = {auto: ['contrast', 'Colours: as the system'], light: ['sun', 'Colours: light'], dark: ['moon', 'Colours: dark']};

function showTheme(name) {
  const [glyph, label] = kThemes[name];
  document.documentElement.dataset.theme = name;
  byId('theme').replaceChildren(icon(glyph));
  byId('theme').title = label;
  byId('theme').setAttribute('aria-label', label);
}

function wireTheme() {
  const names = Object.keys(kThemes);
  showTheme(kThemes[setting('theme')] ? setting('theme') : 'auto');
  byId('theme').addEventListener('click', () => {
    const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
    changeSetting('theme', next);
    showTheme(next);
  });
}

function wirePanels() {
  const glyphs = {'chats-toggle': 'menu', 'live-toggle': 'pulse', 'settings-open': 'sliders', send: 'send', stop: 'stop', 'to-end': 'down', 'live-close': 'close', 'settings-close': 'close', 'notice-close': 'close'};
  for (const [id, glyph] of Object.entries(glyphs)) byId(id).append(icon(glyph));
  byId('new').prepend(icon('plus'));
  byId('new').addEventListener('click', beginChat);
  byId('chats-toggle').addEventListener('click', () => openSidebar(!byId('sidebar').classList.contains('open')));
  byId('live-toggle').addEventListener('click', () => showLive(byId('live').hidden));
  byId('live-close').addEventListener('click', () => { showLive(false); byId('live-toggle').focus(); });
  byId('notice-close').addEventListener('click', () => { byId('notice').hidden = true; input.focus(); });
}

let description = {};  // of a chat's request

function showModel() {
  const model = chosenModel();
  buildSettings(model.sampling || {}, model.ffn_modes, description);
  showExamples(model);
}

// After an answer other models may be awake.
function saved() {
  readModels(showModel).catch(() => {});
  return drawChats();
}

// Until the model is loaded: once a second.
async function findModel() {
  try {
    await call('/health/ready');
    const {components} = await (await call('/openapi.json')).json();
    description = components.schemas.ChatRequest.properties;
    await readModels(showModel);
    showModel();
  } catch (error) {
    byId('model').textContent = error.message;
    if (error.status === 401) return;  // the next message asks again
    await new Promise(resolve => setTimeout(resolve, kRetryMs));
    return findModel();
  }
}

function forget(id) {
  abandon(id);
  if (id !== null && state.chat.id !== id) return;
  state.chat.removed = true;
  startNew();
}

async function begin() {
  Object.assign(hooks, {shown: redraw, grew: grewView, saved, notice});
  setActions({edit, regenerate, resume, giveResults});
  setChatActions({
    current: () => state.chat.id, open: openChat, removed: forget, notice,
    renamed: (id, title) => { if (state.chat.id === id) state.chat.title = title; },
  });
  for (const wire of [wirePanels, wireInput, wireKeys, wireSettings, wireTheme]) wire();
  buildSettings({});
  showExamples({});
  redraw();
  if (!await openStore()) notice('This browser keeps no data for this page: chats end with it.');
  byId('about').hidden = await drawChats();
  await findModel();
  const question = new URLSearchParams(location.search).get('q');
  if (!question || state.chat.messages.length) return;
  history.replaceState(null, '', location.pathname);  // a reload asks no second time
  send(question);
}

begin();
