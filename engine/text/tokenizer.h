// Text to token ids and back, for every vocabulary a model file can hold.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/model/vocabulary.h"

namespace thermocline::text {

// ProtectControlTokens puts this byte, which UTF-8 never uses, inside what would otherwise read as
// a control token; Encode takes it out again where `token_breaks` is set.
inline constexpr char kTokenBreak = '\xFF';

struct EncodeOptions {
  bool add_bos = false;  // in front, if the vocabulary has one
  bool control_tokens =
      false;  // control tokens in the text become themselves; else they are plain text
  bool token_breaks = false;  // the text holds kTokenBreak bytes
};

// Thread-safe after Create.
class Tokenizer {
 public:
  // FailedPrecondition if the vocabulary is absent; Unimplemented for an unknown pre-tokenizer.
  static Result<std::unique_ptr<Tokenizer>> Create(const model::Vocabulary& vocabulary);
  virtual ~Tokenizer() = default;

  // Ill-formed UTF-8 is read as U+FFFD. Interrupted (base::Interrupted), it ends early.
  std::vector<int> Encode(std::string_view text, const EncodeOptions& options) const;
  // The bytes `token` stands for; control tokens have none unless `control_tokens`. Requires: id in
  // range.
  const std::string& TokenBytes(int token, bool control_tokens = false) const;
  // Whole text of `tokens`: without the space that Encode put in front, ill-formed bytes as U+FFFD.
  std::string Decode(const std::vector<int>& tokens, bool control_tokens = false) const;

  // `text` with kTokenBreak inside every control token it spells, so that it stays plain text.
  std::string ProtectControlTokens(std::string_view text) const;

  // Bytes of the longest token: a text of n bytes has at least n / this tokens.
  std::size_t token_bytes_max() const { return token_bytes_max_; }

  const model::Vocabulary& vocabulary() const { return vocabulary_; }
  bool IsStop(int token) const { return is_stop_[token]; }

 protected:
  explicit Tokenizer(const model::Vocabulary& vocabulary);
  // Appends the ids of plain text. `at_start`: nothing or a special token stands in front.
  virtual void EncodePlain(std::string_view text, bool at_start, std::vector<int>& out) const = 0;
  void BuildIndex();
  virtual std::string BytesOf(int token) const = 0;

  model::Vocabulary vocabulary_;

 private:
  struct Special {
    std::string text;
    int id;
    bool control;  // else user-defined: always matched
    model::TokenEdges edges;
  };
  // The longest special token at `pos`, or nullptr.
  const Special* MatchSpecial(std::string_view text, std::size_t pos, bool control_tokens) const;
  // Whether no word is next to the `size` bytes at `pos`.
  static bool IsAlone(std::string_view text, std::size_t pos, std::size_t size);
  void EncodeBetween(std::string_view text, bool at_start, bool token_breaks,
                     std::vector<int>& out) const;

  std::vector<Special> specials_by_byte_[256];  // by first byte, longest first
  std::vector<std::string> bytes_;              // by token
  std::vector<bool> is_stop_;                   // by token
  std::size_t token_bytes_max_ = 1;
};

}  // namespace thermocline::text
