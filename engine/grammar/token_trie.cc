#include "engine/grammar/token_trie.h"

#include <algorithm>
#include <numeric>

#include "engine/grammar/automaton.h"

namespace thermocline::grammar {
namespace {

// Number of characters of a text that a JSON string contains unescaped; -1: some need an escape, or
// it is not whole UTF-8.
int PlainChars(const std::string& text) {
  int count = 0;
  for (std::size_t at = 0; at < text.size(); ++count) {
    const unsigned char byte = text[at];
    if (byte < 0x20 || byte == '"' || byte == '\\') return -1;
    const std::size_t before = at;
    const char32_t character = base::DecodeUtf8(text, at);
    const bool bad = character == 0xFFFD && text.compare(before, 3, "\xEF\xBF\xBD") != 0;
    if (bad) return -1;
  }
  return count;
}

}  // namespace

TokenTrie::TokenTrie(const std::vector<std::string>& bytes, const std::vector<int>& tokens) {
  std::vector<std::size_t> open;  // the path to the last token
  const auto close = [&](std::size_t depth) {
    while (open.size() > depth) {
      nodes_[open.back()].next = static_cast<std::uint32_t>(nodes_.size());
      open.pop_back();
    }
  };
  std::string_view last;
  for (const int token : tokens) {
    const std::string& text = bytes[token];
    const auto differ = std::mismatch(last.begin(), last.end(), text.begin(), text.end());
    close(differ.first - last.begin());
    for (std::size_t at = open.size(); at < text.size(); ++at) {
      open.push_back(nodes_.size());
      nodes_.push_back({.byte = static_cast<std::uint8_t>(text[at]),
                        .depth = static_cast<std::uint16_t>(at + 1),
                        .token = -1,
                        .next = 0});
    }
    nodes_[open.back()].token = token;
    last = text;
  }
  close(0);
  for (std::size_t i = 0; i < nodes_.size(); i = nodes_[i].next)
    nodes_with_[nodes_[i].byte] = nodes_[i].next - static_cast<std::uint32_t>(i);
}

VocabularyIndex::VocabularyIndex(const text::Tokenizer& tokenizer, int vocab_size)
    : vocab_size_(vocab_size) {
  const std::size_t count = vocab_size;
  bytes_.resize(count);
  names_.resize(count);
  is_end_.resize(count);
  twin_group_.resize(count, -1);
  text_.resize(WordsFor(vocab_size));
  const int known = std::min(vocab_size, tokenizer.vocabulary().size());
  std::vector<int> tokens;
  for (int token = 0; token < known; ++token) {
    is_end_[token] = tokenizer.IsStop(token);
    names_[token] = tokenizer.TokenBytes(token, true);
    if (is_end_[token]) {
      ends_.push_back(token);  // it ends the text, whatever its name
      continue;
    }
    if (is_known(token)) SetBit(text_, token);
    bytes_[token] = tokenizer.TokenBytes(token);
    if (bytes_[token].empty() || bytes_[token].size() > UINT16_MAX) continue;
    depth_max_ = std::max(depth_max_, base::IntSize(bytes_[token]));
    tokens.push_back(token);
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [this](int a, int b) { return bytes_[a] < bytes_[b]; });
  for (const int token : tokens) {
    if (sorted_.empty() || bytes_[sorted_.back()] != bytes_[token]) {
      sorted_.push_back(token);
      continue;
    }
    int& group = twin_group_[sorted_.back()];
    if (group < 0) {
      group = base::IntSize(twins_);
      twins_.emplace_back();
    }
    twins_[group].push_back(token);
  }
  all_ = Part(sorted_);
  MakeSlices();
}

void VocabularyIndex::MakeSlices() {
  for (const int chars : {Automaton::kPlainDepthMax, 12, 5}) {
    Slice slice{.chars = chars, .plain = Bits(WordsFor(vocab_size_)), .rest = {}};
    std::vector<int> rest;
    for (const int token : sorted_) {
      const int count = PlainChars(bytes_[token]);
      if (count < 0 || count > chars) {
        rest.push_back(token);
        continue;
      }
      SetBit(slice.plain, token);
      for (const int twin : twins(token)) SetBit(slice.plain, twin);
    }
    slice.rest = Part(rest);
    slices_.push_back(std::move(slice));
  }
}

int VocabularyIndex::Find(const std::string& text) const {
  const auto found = std::find(names_.begin(), names_.end(), text);
  return text.empty() || found == names_.end() ? -1 : static_cast<int>(found - names_.begin());
}

std::size_t VocabularyIndex::bytes_held() const {
  std::size_t bytes = all_.bytes_held() + 5 * sorted_.size() * sizeof(int);
  for (const Slice& slice : slices_)
    bytes += slice.rest.bytes_held() + slice.plain.size() * sizeof(std::uint64_t);
  for (const std::string& text : names_) bytes += 2 * (sizeof(std::string) + text.size());
  return bytes;
}

}  // namespace thermocline::grammar
