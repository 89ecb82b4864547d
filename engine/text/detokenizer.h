// Converts tokens to text as they arrive, never splitting a UTF-8 character.
#pragma once

#include <string>

#include "engine/text/tokenizer.h"

namespace thermocline::text {

// One per sequence; thread-compatible. Allocates only beyond the reserved bytes.
class Detokenizer {
 public:
  // `at_text_start`: at most the beginning-of-sequence token comes before, so the space that
  // SentencePiece puts before a text is dropped.
  explicit Detokenizer(const Tokenizer& tokenizer, bool at_text_start = false)
      : tokenizer_(tokenizer),
        drop_space_(at_text_start && tokenizer.vocabulary().add_space_prefix) {
    pending_.reserve(256);
  }

  // Appends the text that is final after `token` to `out`. `control`: include the text of control
  // tokens.
  void Push(int token, std::string& out, bool control = false) {
    pending_ += tokenizer_.TokenBytes(token, control);
    if (drop_space_ && !pending_.empty()) {
      if (pending_.front() == ' ') pending_.erase(0, 1);
      drop_space_ = false;
    }
    Emit(pending_.size() - base::IncompleteUtf8Suffix(pending_), out);
  }
  // Appends the rest; an incomplete character becomes U+FFFD.
  void Finish(std::string& out) { Emit(pending_.size(), out); }

 private:
  void Emit(std::size_t bytes, std::string& out) {
    if (bytes == 0) return;
    out += base::ReplaceInvalidUtf8(std::string_view(pending_).substr(0, bytes));
    pending_.erase(0, bytes);
  }

  const Tokenizer& tokenizer_;
  bool drop_space_;
  std::string pending_;
};

}  // namespace thermocline::text
