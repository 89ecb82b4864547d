// Splits text into words by the model's own regular expressions; byte-level BPE merges only within
// words.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::text {

// Thread-safe after Create.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Splits `text` into consecutive pieces. Requires: well-formed UTF-8.
  virtual std::vector<std::string_view> Split(std::string_view text) const = 0;
  // True if a word that is itself a token is used without merging (Llama 3).
  virtual bool ignore_merges() const = 0;

  // `name` is tokenizer.ggml.pre. Unimplemented if the name is unknown.
  static Result<std::unique_ptr<PreTokenizer>> Create(const std::string& name);
};

}  // namespace thermocline::text
