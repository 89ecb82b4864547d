// Markdown to nodes: the text within a block. One pass; a mark that has no end is searched once.
import {el} from './dom.js';

const kMarksDepthMax = 6;
const kLinkTextMax = 1000;  // characters
const kEscaped = /[\\`*_{}[\]()#+\-.!|~<>$"]/;  // not all of ASCII's: TeX has \, and \; and \%
const kMathMax = 4000;  // characters
const kWord = /[\p{L}\p{N}]/u;
const kAddress = /^(?:https?:\/\/|mailto:)[^\s<>]+$/i;

// Links lead to the web or to mail, never to a script, and tell nobody where they come from.
function linkTo(address, children) {
  if (!kAddress.test(address)) return null;
  return el('a', {href: address, target: '_blank', rel: 'noopener noreferrer nofollow'}, ...children);
}

class Scanner {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.at = 0;
    this.plain = '';
    this.nodes = [];
    this.found = new Map();  // of a mark, where it was sought last and where it stood
  }

  // Where `mark` comes next from `from` on, or -1.
  find(mark, from) {
    const last = this.found.get(mark);
    if (last && from >= last.from && (last.at < 0 || from <= last.at)) return last.at;
    const at = this.text.indexOf(mark, from);
    this.found.set(mark, {from, at});
    return at;
  }

  add(node, end) {
    if (this.plain) this.nodes.push(this.plain);
    this.plain = '';
    this.nodes.push(node);
    this.at = end;
    return true;
  }

  inner(begin, end) {
    return inline(this.text.slice(begin, end), this.depth + 1);
  }

  // TeX stays as it is written, marks included: \(a_1\), \[..\], $$..$$, and $a$ as Pandoc reads it.
  math() {
    const pairs = [['\\(', '\\)'], ['\\[', '\\]'], ['$$', '$$'], ['$', '$']];
    const pair = pairs.find(([open]) => this.text.startsWith(open, this.at));
    if (!pair) return false;
    const [open, close] = pair, begin = this.at + open.length, end = this.find(close, begin);
    if (end <= begin || end - begin > kMathMax) return false;
    const inside = this.text.slice(begin, end), after = this.text[end + close.length] || '';
    if (open === '$' && (/^\s|\s$|\n/.test(inside) || /\d/.test(after))) return false;
    return this.literal(this.text.slice(this.at, end + close.length));
  }

  escape() {
    const next = this.text[this.at + 1] || '';
    if (next === '\n') return this.add(el('br'), this.at + 2);
    if (!kEscaped.test(next)) return false;
    this.plain += next;
    this.at += 2;
    return true;
  }

  code() {
    const run = /^`+/.exec(this.text.slice(this.at, this.at + 32))[0];
    const begin = this.at + run.length;
    let end = this.find(run, begin);
    while (end >= 0 && this.text[end + run.length] === '`') {  // a longer run is none of ours
      let past = end;
      while (this.text[past] === '`') ++past;
      end = this.find(run, past);
    }
    if (end < 0) return this.literal(run);
    const text = this.text.slice(begin, end).replaceAll('\n', ' ');
    const padded = text.length > 2 && text.startsWith(' ') && text.endsWith(' ') && text.trim();
    return this.add(el('code', {}, padded ? text.slice(1, -1) : text), end + run.length);
  }

  literal(text) {
    this.plain += text;
    this.at += text.length;
    return true;
  }

  // **strong**, *emphasis*, ~~deleted~~, with _ in place of * between words.
  emphasis(mark, name) {
    const begin = this.at + mark.length, before = this.text[this.at - 1] || ' ';
    if (!this.text.startsWith(mark, this.at) || /\s|^$/.test(this.text[begin] || '')) return false;
    if (mark[0] === '_' && kWord.test(before)) return false;
    for (let end = this.find(mark, begin + 1), tries = 0; end >= 0 && tries < 16; end = this.find(mark, end + 1), ++tries) {
      const after = this.text[end + mark.length] || ' ';
      if (/[\s\\]/.test(this.text[end - 1])) continue;
      if (mark.length === 1 && (after === mark || this.text[end - 1] === mark)) continue;
      if (mark === '**' && after === '*') ++end;
      if (mark[0] === '_' && kWord.test(after)) continue;
      return this.add(el(name, {}, ...this.inner(begin, end)), end + mark.length);
    }
    return false;
  }

  // [text](address "title"), and images as links: nothing is loaded from elsewhere.
  link() {
    const image = this.text[this.at] === '!', begin = this.at + (image ? 2 : 1);
    const close = this.find('](', begin), end = close < 0 ? -1 : this.find(')', close);
    if (end < 0 || close - begin > kLinkTextMax || this.text.slice(begin, close).includes('\n\n')) return false;
    const open = this.text.slice(begin, close).lastIndexOf('[');
    if (open >= 0 && !image) return false;  // an inner one is the link
    const target = this.text.slice(close + 2, end).trim();
    const address = target.startsWith('<') ? target.slice(1).split('>', 1)[0] : target.split(/\s/, 1)[0];
    const label = image ? [`image: ${this.text.slice(begin, close) || address}`] : this.inner(begin, close);
    const node = linkTo(address, label);
    return node !== null && this.add(node, end + 1);
  }

  bareAddress() {
    const before = this.text[this.at - 1] || ' ';
    const found = kWord.test(before) ? null : /^https?:\/\/[^\s<>"'`]+/i.exec(this.text.slice(this.at, this.at + 2048));
    if (!found) return false;
    let address = found[0].replace(/[.,;:!?*_~]+$/, '');
    if (address.endsWith(')') && !address.includes('(')) address = address.slice(0, -1);
    return this.add(linkTo(address, [address]) || address, this.at + address.length);
  }

  step() {
    switch (this.text[this.at]) {
      case '\\': return this.math() || this.escape();
      case '$': return this.math();
      case '`': return this.code();
      case '*': return this.emphasis('**', 'strong') || this.emphasis('*', 'em');
      case '_': return this.emphasis('__', 'strong') || this.emphasis('_', 'em');
      case '~': return this.emphasis('~~', 'del');
      case '[': return this.link();
      case '!': return this.text[this.at + 1] === '[' && this.link();
      case 'h': return this.bareAddress();
      case '\n': return this.plain.endsWith('  ') && this.add(el('br'), this.at + 1);
      default: return false;
    }
  }

  run() {
    if (this.depth > kMarksDepthMax) return [this.text];
    while (this.at < this.text.length)
      if (!this.step()) this.literal(this.text[this.at]);
    if (this.plain) this.nodes.push(this.plain);
    return this.nodes;
  }
}

// Strings and elements.
export function inline(text, depth = 0) {
  return new Scanner(text, depth).run();
}
