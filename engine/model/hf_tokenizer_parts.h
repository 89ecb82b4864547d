// Parts of a tokenizer.json: what comes before the vocabulary is looked at. What this program would
// not do as `tokenizers` does is Unimplemented, by name.
#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/model/vocabulary.h"

namespace thermocline::model {

// A field that is there and true.
bool IsTrue(const Json& object, const char* name);

// GGUF's name of a tokenizer.json's pre-tokenizer, and v.prefix_space. Source: the pre-tokenizers
// of the models' own files.
Result<std::string> PreTokenizerName(const Json& tokenizer, Vocabulary& v);

// The rules of an added token for the text beside it.
TokenEdges EdgesOf(const Json& token);

// Added tokens are looked for in the text as it comes. One that is looked for in the normal form is
// the same only if the form leaves its letters alone.
Status CheckNormalized(const Json& token, const Vocabulary& v);

// "normalizer": one, or a sequence, to v.normalizers. Those of SentencePiece's spaces are part of
// its tokenizer. Null: none.
Status ReadNormalizers(const Json* normalizer, Vocabulary& v);

}  // namespace thermocline::model
