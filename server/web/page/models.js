// The models of the server: which of them answers is chosen beside the title, if there are several.
import {call} from './api.js';
import {byId, el} from './dom.js';
import {changeSetting, setting} from './settings.js';

const kModelStates = {sleeping: ' (asleep)', loading: ' (loading)', failed: ' (failed)'};

let servedModels = [];

// The model that answers: the chosen one while the server has it, else the first one.
export const chosenModel = () => servedModels.find(model => model.id === setting('model')) || servedModels[0] || {};

// Fields of a request. One model needs no name.
export const modelFields = () => servedModels.length > 1 ? {model: chosenModel().id} : {};

const modelWords = model => model.id + (kModelStates[model.status && model.status.value] || '');

function drawModels(onChange) {
  const chosen = chosenModel().id;
  byId('model').textContent = servedModels.length > 1 ? '' : chosen;
  if (servedModels.length < 2) return;
  const choice = el('select', {id: 'model-choice', 'aria-label': 'Model', title: 'The model that answers', onchange: () => {
    changeSetting('model', choice.value);
    onChange();
  }}, ...servedModels.map(model => el('option', {value: model.id}, modelWords(model))));
  choice.value = chosen;
  byId('model').replaceChildren(choice);
}

// Asks the server for its models and shows them. `onChange` is called when another one is chosen.
export async function readModels(onChange) {
  const {data} = await (await call('/v1/models')).json();
  servedModels = data.filter((model, index) => index === 0 || model.status);  // one model may have several names
  if (document.activeElement !== byId('model-choice')) drawModels(onChange);
}
