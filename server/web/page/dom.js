// Elements without markup: text from a model, a file or a server only ever becomes text nodes.

export const byId = id => document.getElementById(id);

// el('button', {class: 'icon', type: 'button', onclick: f, 'aria-label': '...'}, child, 'text')
// Functions become listeners, false and null leave an attribute out, true gives an empty one.
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (typeof value === 'function') element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

const kSvg = 'http://www.w3.org/2000/svg';

export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(kSvg, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// Strokes on a grid of 24 x 24.
const kIcons = {
  plus: 'M12 5v14M5 12h14',
  menu: 'M4 6h16M4 12h16M4 18h16',
  pulse: 'M2 12h5l3-8 4 16 3-8h5',
  sliders: 'M4 7h10M18 7h2M4 17h2M10 17h10M16 4v6M8 14v6',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M5 19l2-2M17 7l2-2',
  moon: 'M20 14A8 8 0 1 1 10 4a7 7 0 0 0 10 10z',
  contrast: 'M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 3v18M12 8l7-1M12 13h9M12 18l5-1',
  send: 'M12 20V5M5 12l7-7 7 7',
  stop: 'M7 7h10v10H7z',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  check: 'M4 12l6 6L20 6',
  pencil: 'M4 20l1-5L16 4l4 4L9 19z',
  again: 'M20 12a8 8 0 1 1-2.3-5.7L20 9M20 4v5h-5',
  play: 'M7 5l12 7-12 7z',
  bin: 'M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13',
  down: 'M12 4v15M5 12l7 7 7-7',
  save: 'M12 3v12M7 10l5 5 5-5M4 20h16',
  close: 'M6 6l12 12M18 6L6 18',
};

export function icon(name) {
  return svg('svg', {viewBox: '0 0 24 24', class: 'glyph', 'aria-hidden': 'true', focusable: 'false'},
             svg('path', {d: kIcons[name]}));
}

// A button that shows an icon and is called `label`.
export function iconButton(name, label, onclick, more = {}) {
  return el('button', {type: 'button', class: 'icon', 'aria-label': label, title: label, onclick, ...more}, icon(name));
}

// Told to screen readers, once, when they have time.
export function announce(text) {
  byId('announcer').textContent = text;
}

// navigator.clipboard exists on https and localhost alone.
async function copyText(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {}  // refused: the older way may still be allowed
  }
  const area = el('textarea', {class: 'unseen', 'aria-hidden': 'true'});
  area.value = text;
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const copied = document.execCommand('copy');
  area.remove();
  if (focused) focused.focus();
  return copied;
}

export function copyButton(label, text) {
  const button = iconButton('copy', label, async () => {
    const copied = await copyText(text());
    announce(copied ? 'Copied' : 'The browser does not allow copying');
    button.replaceChildren(icon(copied ? 'check' : 'close'));
    setTimeout(() => button.replaceChildren(icon('copy')), 1500);
  });
  return button;
}

export function download(name, text) {
  const link = el('a', {download: name, href: URL.createObjectURL(new Blob([text], {type: 'application/json'}))});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Asks in a dialog; true: the answer was yes.
export function confirmed(question, yes) {
  const dialog = byId('confirm');
  byId('confirm-text').textContent = question;
  byId('confirm-yes').textContent = yes;
  dialog.returnValue = '';
  dialog.showModal();
  return new Promise(resolve => {
    dialog.addEventListener('close', () => resolve(dialog.returnValue === 'yes'), {once: true});
  });
}
