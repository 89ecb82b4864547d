// A vocabulary's tokens by their bytes.
//
// Nodes are in depth-first order, each with the index after its subtree: a walk that meets a
// forbidden byte skips all tokens that begin with it. Source: llguidance's flat trie (Moskal et al.
// 2025).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"

namespace thermocline::grammar {

using Bits = std::vector<std::uint64_t>;
inline std::size_t WordsFor(std::size_t bits) { return (bits + 63) / 64; }
inline void SetBit(std::span<std::uint64_t> bits, int at) {
  bits[static_cast<std::size_t>(at) / 64] |= std::uint64_t{1} << (static_cast<unsigned>(at) % 64);
}
inline void ClearBit(std::span<std::uint64_t> bits, int at) {
  bits[static_cast<std::size_t>(at) / 64] &= ~(std::uint64_t{1} << (at % 64));
}
inline bool HasBit(std::span<const std::uint64_t> bits, int at) {
  return (bits[static_cast<std::size_t>(at) / 64] >> (static_cast<unsigned>(at) % 64) & 1) != 0;
}

struct TrieNode {
  std::uint8_t byte;
  std::uint16_t depth;  // bytes from the root to here, 1 for a first byte
  int token;            // the token that ends here, -1 = none
  std::uint32_t next;   // the node after the subtree of this one
};

// Immutable. Tokens without bytes (control tokens) are not in it.
class TokenTrie {
 public:
  TokenTrie() = default;
  // `tokens`: sorted by bytes; the first of equal ones represents all.
  TokenTrie(const std::vector<std::string>& bytes, const std::vector<int>& tokens);
  std::span<const TrieNode> nodes() const { return nodes_; }
  // Nodes of the tokens that begin with `byte`.
  std::uint32_t nodes_with(int byte) const { return nodes_with_[byte]; }
  std::size_t bytes_held() const { return sizeof(*this) + nodes_.size() * sizeof(TrieNode); }

 private:
  std::array<std::uint32_t, 256> nodes_with_ = {};
  std::vector<TrieNode> nodes_;
};

// The properties of a vocabulary that grammars need. Immutable; shared by all grammars of a model.
class VocabularyIndex {
 public:
  // `vocab_size`: number of the model's logits, at least the number of the vocabulary's tokens.
  VocabularyIndex(const text::Tokenizer& tokenizer, int vocab_size);

  int vocab_size() const { return vocab_size_; }
  const std::string& bytes(int token) const { return bytes_[token]; }
  int depth_max() const { return depth_max_; }  // bytes of the longest token
  bool is_end(int token) const { return is_end_[token]; }
  // True for tokens of the vocabulary; there may be more logits.
  bool is_known(int token) const { return !names_[token].empty(); }
  const std::vector<int>& ends() const { return ends_; }
  // The known tokens that do not end the text.
  const Bits& text() const { return text_; }
  // Tokens with the same bytes as `token`, which represents them; `token` itself not included.
  std::span<const int> twins(int token) const {
    const int group = twin_group_[token];
    return group < 0 ? std::span<const int>() : std::span<const int>(twins_[group]);
  }
  const TokenTrie& all() const { return all_; }
  // Tokens sorted by bytes, one for each spelling.
  const std::vector<int>& sorted() const { return sorted_; }
  // The token of that name (a control token) or with those bytes; -1: none.
  int Find(const std::string& text) const;
  TokenTrie Part(const std::vector<int>& sorted) const { return {bytes_, sorted}; }

  // Tokens of at most `chars` characters that a JSON string contains unescaped, and all others.
  struct Slice {
    int chars;
    Bits plain;
    TokenTrie rest;
  };
  // The longest first.
  const std::vector<Slice>& slices() const { return slices_; }
  std::size_t bytes_held() const;

 private:
  void MakeSlices();

  int vocab_size_, depth_max_ = 1;
  std::vector<std::string> bytes_, names_;
  std::vector<bool> is_end_;
  std::vector<int> ends_, sorted_, twin_group_;
  Bits text_;
  std::vector<std::vector<int>> twins_;
  TokenTrie all_;
  std::vector<Slice> slices_;
};

}  // namespace thermocline::grammar
