// Converts text to token ids and back, for every vocabulary that a model file can contain.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/model/vocabulary.h"
#include "engine/text/template_text.h"

namespace thermocline::text {

inline constexpr std::size_t kPieceBytes = 16 << 10;

struct EncodeOptions {
  bool add_bos = false;  // prepended, if the vocabulary has one
  bool control_tokens =
      false;  // control tokens in the text are recognised; otherwise they are plain text
  // Approximate number of bytes encoded at a time. Does not affect the tokens.
  std::size_t piece_bytes = kPieceBytes;
};

// Thread-safe after Create.
class Tokenizer {
 public:
  // FailedPrecondition if the vocabulary is absent; Unimplemented for an unknown pre-tokenizer.
  static Result<std::unique_ptr<Tokenizer>> Create(const model::Vocabulary& vocabulary);
  virtual ~Tokenizer() = default;

  // Ill-formed UTF-8 is read as U+FFFD. Ends early if interrupted (base::Interrupted).
  std::vector<int> Encode(std::string_view text, const EncodeOptions& options) const;
  // Control tokens are recognised if all their bytes are the template's own.
  std::vector<int> Encode(const TemplateText& prompt) const;
  // The bytes that `token` represents; empty for control tokens unless `control_tokens`. Requires:
  // id in range.
  const std::string& TokenBytes(int token, bool control_tokens = false) const;
  // The whole text of `tokens`, without the space that Encode prepended, ill-formed bytes as
  // U+FFFD. Ends early if interrupted.
  std::string Decode(const std::vector<int>& tokens, bool control_tokens = false) const;

  // Bytes of the longest token: a text of n bytes has at least n / this tokens.
  std::size_t token_bytes_max() const { return token_bytes_max_; }

  const model::Vocabulary& vocabulary() const { return vocabulary_; }
  bool IsStop(int token) const { return is_stop_[token]; }

 protected:
  explicit Tokenizer(const model::Vocabulary& vocabulary);
  // Appends the ids of plain text, encoded in pieces of about `piece_bytes`. `at_start`: at most a
  // special token comes before.
  virtual void EncodePlain(std::string_view text, bool at_start, std::size_t piece_bytes,
                           std::vector<int>& out) const = 0;
  void BuildIndex();
  virtual std::string BytesOf(int token) const = 0;

  model::Vocabulary vocabulary_;

 private:
  struct Special {
    std::string text;
    int id;
    bool control;  // otherwise user-defined, and always matched
    model::TokenEdges edges;
  };
  // A text and the control tokens recognised in it: all or none, or those whose bytes in `prompt`
  // are its own.
  struct Source {
    std::string_view text;
    bool control_tokens = false;
    const TemplateText* prompt = nullptr;
    std::size_t piece_bytes = kPieceBytes;
    bool ReadsControl(std::size_t pos, std::size_t size) const {
      return prompt != nullptr ? prompt->IsOwn(pos, pos + size) : control_tokens;
    }
  };
  void EncodeSource(const Source& source, std::vector<int>& out) const;
  // The longest special token at `pos`, or nullptr.
  // The longest special token that the text has at `pos`; null if it has none. Adds the bytes that
  // were compared to `work`.
  const Special* MatchSpecial(const Source& source, std::size_t pos, std::size_t& work) const;
  static bool Fits(const Special& special, const Source& source, std::size_t pos);
  // True if no word character is next to the `size` bytes at `pos`.
  static bool IsAlone(std::string_view text, std::size_t pos, std::size_t size);
  void EncodeBetween(std::string_view text, bool at_start, std::size_t piece_bytes,
                     std::vector<int>& out) const;

  std::vector<Special> specials_by_byte_[256];  // by first byte, sorted by text
  std::vector<std::string> bytes_;              // by token
  std::vector<bool> is_stop_;                   // by token
  std::size_t token_bytes_max_ = 1;
};

}  // namespace thermocline::text
