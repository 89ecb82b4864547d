// Unigram tokenizers in a tokenizer.json (XLM-RoBERTa).
#pragma once

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/model/vocabulary.h"

namespace thermocline::model {

// Fills the vocabulary. `model`: the field of that name. Unimplemented names a step that this
// program would not perform like `tokenizers`; DataLoss: the vocabulary is damaged.
Status ParseUnigram(const Json& tokenizer, const Json& model, Vocabulary& vocabulary);

}  // namespace thermocline::model
