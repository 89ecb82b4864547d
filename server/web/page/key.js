// The dialog that asks for a key. One at a time, however many calls need it.
import {byId} from './dom.js';

let asking = null;

function showKeyDialog(refused) {
  const dialog = byId('key');
  byId('key-why').textContent = refused
    ? 'The server does not know this key. Check it, or ask its operator for another one.'
    : 'This server answers only to those who have a key. Its operator gives them out.';
  byId('key-input').value = '';
  dialog.returnValue = '';
  dialog.showModal();
  byId('key-input').focus();
  return new Promise(resolve => {
    dialog.addEventListener('close', () => {
      const given = dialog.returnValue === 'yes' ? byId('key-input').value.trim() : '';
      byId('key-input').value = '';
      resolve(given ? {key: given, keep: byId('key-keep').checked} : null);
    }, {once: true});
  });
}

// {key, keep} to try; null: the user has none.
export function askForKey(refused) {
  asking = asking || showKeyDialog(refused).finally(() => { asking = null; });
  return asking;
}
