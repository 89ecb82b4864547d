// Reads the vocabularies of Hugging Face folders.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "engine/model/vocabulary.h"

namespace thermocline::model {

// The vocabulary of a folder's tokenizer.json or tokenizer.model, with tokenizer_config.json.
Result<Vocabulary> ReadHuggingFaceTokenizer(const std::string& folder);
// A SentencePiece model (tokenizer.model).
Result<Vocabulary> ReadSentencePieceModel(const std::string& path);

}  // namespace thermocline::model
