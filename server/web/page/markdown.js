// Markdown to elements: the blocks. Everything that is not known markdown stays text.
// Blocks that have not changed keep their elements, so that a growing answer costs little and a
// selection in it survives.
import {copyButton, el} from './dom.js';
import {inline} from './inline.js';

const kDepthMax = 8;  // of quotes and lists in each other; deeper ones are text

// None of them may try a run of blanks again from each of its places: a growing answer is read many times.
const kFence = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})(?:\s(.*))?$/s;
const kRule = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const kItem = /^( {0,3})([-*+]|\d{1,9}[.)])(?: (.*)|)$/s;
const kDelimiter = /^:?-+:?$/;

const indentOf = line => line.length - line.trimStart().length;
const startsBlock = line => kFence.test(line) || kHeading.test(line) || kRule.test(line) || kItem.test(line) || line.startsWith('>');

// Each takes lines from `at` and returns the index behind its block.
function takeFence(lines, at, blocks) {
  const [, fence, info] = lines[at].match(kFence);
  let end = at + 1;
  const closes = line => line.trim().startsWith(fence) && !line.trim().replaceAll(fence[0], '');
  while (end < lines.length && !closes(lines[end])) ++end;
  blocks.push({kind: 'code', language: info.trim().split(/\s/)[0], text: lines.slice(at + 1, end).join('\n')});
  return end + 1;
}

function takeQuote(lines, at, blocks) {
  let end = at;
  const inner = [];
  for (; end < lines.length && lines[end].trim(); ++end) {
    if (!lines[end].startsWith('>') && startsBlock(lines[end])) break;
    inner.push(lines[end].replace(/^> ?/, ''));
  }
  blocks.push({kind: 'quote', text: inner.join('\n')});
  return end;
}

// Items of one list have one kind of marker; what is indented behind a marker belongs to its item.
function takeList(lines, at, blocks) {
  const first = lines[at].match(kItem);
  const ordered = /\d/.test(first[2]), kind = first[2].at(-1);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const item = lines[end].match(kItem);
    if (!item || item[2].at(-1) !== kind || kRule.test(lines[end])) break;
    const width = item[1].length + item[2].length + 1;
    const inner = [(item[3] || '').trimStart()];
    for (++end; end < lines.length; ++end) {
      const line = lines[end], blank = !line.trim();
      const inside = indentOf(line) >= Math.min(width, item[1].length + 2);
      const lazy = !blank && lines[end - 1].trim() && !startsBlock(line.trimStart());
      if (blank ? !(lines[end + 1] || '').trim() : !inside && !lazy) break;
      if (blank && indentOf(lines[end + 1]) < 2) break;
      inner.push(line.slice(Math.min(indentOf(line), width)));
    }
    items.push(inner.join('\n'));
    let next = end;
    while (next < lines.length && !lines[next].trim()) ++next;
    if (next > end && next < lines.length && kItem.test(lines[next])) end = next;
  }
  blocks.push({kind: 'list', ordered, start: ordered ? parseInt(first[2], 10) : 1, items});
  return end;
}

const cellsOf = line => line.trim().replace(/^\||\|$/g, '').split(/(?<!\\)\|/).map(cell => cell.trim().replaceAll('\\|', '|'));

const delimits = line => line.includes('-') && indentOf(line) < 4 && cellsOf(line).every(cell => kDelimiter.test(cell));

function takeTable(lines, at, blocks) {
  const head = cellsOf(lines[at]);
  const align = cellsOf(lines[at + 1]).map(c => c.endsWith(':') ? (c.startsWith(':') ? 'center' : 'right') : 'left');
  const rows = [];
  let end = at + 2;
  for (; end < lines.length && lines[end].includes('|') && lines[end].trim(); ++end) rows.push(cellsOf(lines[end]).slice(0, head.length));
  blocks.push({kind: 'table', head, align, rows});
  return end;
}

// A formula on lines of its own: no line of it is an item or a rule.
const kFormula = /^ {0,3}(\\\[|\$\$)/;

function takeFormula(lines, at, blocks) {
  const close = lines[at].match(kFormula)[1] === '$$' ? '$$' : '\\]';
  let end = at;
  while (end < lines.length && lines[end].trim() && !(end > at ? lines[end] : lines[end].trim().slice(2)).includes(close)) ++end;
  if (end >= lines.length || !lines[end].trim()) return takeParagraph(lines, at, blocks);
  blocks.push({kind: 'formula', text: lines.slice(at, end + 1).join('\n')});
  return end + 1;
}

function takeParagraph(lines, at, blocks) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !startsBlock(lines[end])) ++end;
  blocks.push({kind: 'text', text: lines.slice(at, end).map(line => line.trimStart()).join('\n')});
  return end;
}

function blocksOf(text) {
  const lines = text.replaceAll('\t', '    ').split(/\r?\n/);
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    const heading = line.match(kHeading);
    if (!line.trim()) ++at;
    else if (kFence.test(line)) at = takeFence(lines, at, blocks);
    else if (heading) at = (blocks.push({kind: 'heading', level: heading[1].length, text: (heading[2] || '').trim().replace(/\s#+\s*$/, '')}), at + 1);
    else if (kFormula.test(line)) at = takeFormula(lines, at, blocks);
    else if (kRule.test(line)) at = (blocks.push({kind: 'rule'}), at + 1);
    else if (line.startsWith('>')) at = takeQuote(lines, at, blocks);
    else if (kItem.test(line)) at = takeList(lines, at, blocks);
    else if (line.includes('|') && delimits(lines[at + 1] || '') && cellsOf(line).length === cellsOf(lines[at + 1]).length) at = takeTable(lines, at, blocks);
    else at = takeParagraph(lines, at, blocks);
  }
  return blocks;
}

function codeElement(block) {
  const code = el('code', {}, block.text);
  return el('div', {class: 'code'},
            el('div', {class: 'code-head'}, el('span', {}, block.language || 'text'), copyButton('Copy code', () => block.text)),
            el('pre', {tabindex: '0', role: 'group', 'aria-label': `Code${block.language ? ', ' + block.language : ''}`}, code));
}

function tableElement(block) {
  const row = (name, cells) => el('tr', {}, ...cells.map((cell, i) => el(name, {class: 'to-' + (block.align[i] || 'left'), scope: name === 'th' ? 'col' : null}, ...inline(cell))));
  return el('div', {class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Table'},
            el('table', {}, el('thead', {}, row('th', block.head)), el('tbody', {}, ...block.rows.map(cells => row('td', cells)))));
}

function listElement(block, depth) {
  const items = block.items.map(text => {
    const inner = elementsOf(text, depth + 1);
    // A list of single lines is set tightly.
    const tight = inner.length && inner[0].tagName === 'P' ? [...inner[0].childNodes, ...inner.slice(1)] : inner;
    return el('li', {}, ...tight);
  });
  return block.ordered ? el('ol', {start: block.start}, ...items) : el('ul', {}, ...items);
}

function elementOf(block, depth) {
  switch (block.kind) {
    case 'code': return codeElement(block);
    // A message has a heading of its own for screen readers, of level 2.
    case 'heading': return el('h' + Math.min(6, block.level + 2), {class: 'level' + block.level}, ...inline(block.text));
    case 'rule': return el('hr');
    case 'quote': return el('blockquote', {}, ...elementsOf(block.text, depth + 1));
    case 'list': return listElement(block, depth);
    case 'table': return tableElement(block);
    case 'formula': return el('p', {class: 'formula'}, block.text);
    default: return el('p', {}, ...inline(block.text));
  }
}

function elementsOf(text, depth) {
  if (depth > kDepthMax) return [el('p', {}, text)];
  return blocksOf(text).map(block => elementOf(block, depth));
}

const kShown = new WeakMap();  // element -> keys of the blocks that its children show

// Makes `element` show `text`.
export function showMarkdown(element, text) {
  const blocks = blocksOf(text), keys = blocks.map(block => JSON.stringify(block));
  const shown = kShown.get(element) || [];
  let same = 0;
  while (same < keys.length && keys[same] === shown[same]) ++same;
  while (element.childNodes.length > same) element.lastChild.remove();
  element.append(...blocks.slice(same).map(block => elementOf(block, 0)));
  kShown.set(element, keys);
}
