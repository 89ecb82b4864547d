// Facts that a model's files state, known also while it sleeps.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>

#include "engine/text/tokenizer.h"

namespace thermocline {

struct ModelFacts {
  std::int64_t bytes = 0;    // of its files
  std::time_t modified = 0;  // Unix time of the file's last change
  std::string architecture, weight_type;
  std::int64_t num_parameters = 0;
  int context_length_trained = 0;
};

// The tokenizer of the model at `path`; nullptr: it has none that can be used. Errors of reading.
Result<std::unique_ptr<text::Tokenizer>> ReadTokenizer(const std::string& path);

// Reads the header of the model at `path`, which may be a name. What cannot be read is 0 or "".
ModelFacts ReadModelFacts(const std::string& path);

}  // namespace thermocline
