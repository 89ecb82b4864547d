// BPE by merge rank: byte-level (GPT-2's alphabet, Llama 3, Qwen) and over characters (Gemma 4).
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/text/pre_tokenizer.h"
#include "engine/text/text_pieces.h"
#include "engine/text/tokenizer.h"

namespace thermocline::text {

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(const model::Vocabulary& vocabulary, std::unique_ptr<PreTokenizer> pre_tokenizer);

 protected:
  void EncodePlain(std::string_view text, bool at_start, std::size_t piece_bytes,
                   std::vector<int>& out) const override;
  std::string BytesOf(int token) const override;

 private:
  struct Rule {
    int rank;
    int merged;
  };
  void AddMerges();
  void EncodeWords(std::string_view text, std::vector<int>& out) const;
  void EncodeWord(std::string_view word, std::vector<int>& out) const;
  int Find(const std::string& token) const;
  // As Find, but a part of a merge that is not a token gets an id beyond the vocabulary.
  int FindOrAdd(const std::string& token);

  const bool byte_level_;
  int num_parts_ = 0;                               // ids beyond the vocabulary
  std::unordered_map<std::string, int> ids_;        // by raw bytes of normal tokens and parts of
                                                    // merges
  std::unordered_map<std::uint64_t, Rule> merges_;  // by (left id, right id)
  std::vector<int> byte_tokens_;                    // [256]: token of a single byte, -1 if none
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  bool cuts_words_ = false;  // byte-level: text may be cut where IsBetweenWords is true
  MarkCuts cuts_;            // for BPE over characters
};

}  // namespace thermocline::text
