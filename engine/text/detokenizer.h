// Tokens to text as they come, never part of a UTF-8 character.
#pragma once

#include <string>

#include "engine/text/tokenizer.h"

namespace thermocline::text {

// One per sequence; thread-compatible. Allocates only beyond the reserved bytes.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) { pending_.reserve(256); }

  // Appends to `out` the text that is certain after `token`.
  void Push(int token, std::string& out) {
    pending_ += tokenizer_.TokenBytes(token);
    Emit(pending_.size() - static_cast<std::size_t>(base::IncompleteUtf8Suffix(pending_)), out);
  }
  // Appends what is left; a character that never ended becomes U+FFFD.
  void Finish(std::string& out) { Emit(pending_.size(), out); }

 private:
  void Emit(std::size_t bytes, std::string& out) {
    if (bytes == 0) return;
    out += base::ReplaceInvalidUtf8(std::string_view(pending_).substr(0, bytes));
    pending_.erase(0, bytes);
  }

  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace thermocline::text
