// Parts of a tokenizer.json: the steps before the vocabulary look-up. Unimplemented names a step
// that this program would not perform like `tokenizers`.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/model/vocabulary.h"

namespace thermocline::model {

// True if the field exists and is true.
bool IsTrue(const Json& object, const char* name);

// Returns GGUF's name of a tokenizer.json's pre-tokenizer, and sets v.prefix_space. Source: the
// pre-tokenizers of the models' own files.
Result<std::string> PreTokenizerName(const Json& tokenizer, Vocabulary& v);

// The id of a token with that text; -1: there is none.
int FindToken(const Vocabulary& v, std::string_view text);

// Reads the tokens that a text begins and ends with from "post_processor", if that is a template.
void ReadTemplate(const Json& processor, Vocabulary& v);

// Returns an added token's rules for the text beside it.
TokenEdges EdgesOf(const Json& token);

// Added tokens are searched in the text before normalization. A token that is searched in the
// normalized text is supported only if normalization leaves its letters unchanged.
Status CheckNormalized(const Json& token, const Vocabulary& v);

// Reads "normalizer", one or a sequence, into v.normalizers. SentencePiece's normalizers of spaces
// are part of its tokenizer. Null: none.
Status ReadNormalizers(const Json* normalizer, Vocabulary& v);

// Checks that a WordPiece tokenizer divides texts as BERT's does, and sets v.normalizers.
// Unimplemented names an option that is not supported.
Status CheckBert(const Json& tokenizer, const Json& model, Vocabulary& v);

}  // namespace thermocline::model
