#include "engine/text/word_piece.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <array>

#include "engine/base/interruption.h"
#include "engine/base/strings.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/unicode_text.h"

namespace thermocline::text {
namespace {

constexpr int kWordCharactersMax = 100;  // longer words are unknown. Source: BERT

// True for characters that are removed: controls, and those that stand for no character.
bool IsIgnored(char32_t c) {
  if (c == 0 || c == 0xFFFD) return true;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_C_MASK) != 0;
}

// True for characters that are words by themselves. Source: the tokenizers library's
// is_chinese_char and is_bert_punc.
bool IsOwnWord(char32_t c) {
  struct Range {
    char32_t first, last;
  };
  constexpr std::array<Range, 8> kCjk = {
      Range{0x4E00, 0x9FFF}, {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
      {0x2B740, 0x2B81F},    {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  if (c < 0x80) return u_isgraph(static_cast<UChar32>(c)) && !u_isalnum(static_cast<UChar32>(c));
  if ((U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_P_MASK) != 0) return true;
  return std::any_of(kCjk.begin(), kCjk.end(),
                     [c](const Range& range) { return c >= range.first && c <= range.last; });
}

}  // namespace

WordPieceTokenizer::WordPieceTokenizer(const model::Vocabulary& vocabulary)
    : Tokenizer(vocabulary) {
  for (int id = 0; id < vocabulary_.size(); ++id) {
    const std::string& text = vocabulary_.tokens[id];
    if (vocabulary_.types[id] != model::TokenType::kNormal || text.empty()) continue;
    pieces_.emplace(text, id);
    piece_bytes_max_ = std::max(piece_bytes_max_, text.size());
  }
}

void WordPieceTokenizer::EncodePlain(std::string_view text, bool, std::size_t,
                                     std::vector<int>& out) const {
  const std::string begin(kSpaceMark);
  std::string word = begin;
  int characters = 0, words = 0;
  const auto end = [&] {
    if (characters > kWordCharactersMax) {
      if (vocabulary_.unk >= 0) out.push_back(vocabulary_.unk);
    } else if (characters > 0) {
      EncodeWord(word, out);
    }
    word = begin;
    characters = 0;
  };
  for (std::size_t at = 0; at < text.size();) {
    constexpr int kWordsUnasked = 16;  // a word takes as many look-ups as it has pairs of bytes
    const std::size_t from = at;
    const char32_t c = base::DecodeUtf8(text, at);
    const bool space = IsSpace(c);
    if (!space && IsIgnored(c)) continue;
    const bool alone = !space && IsOwnWord(c);
    if (space || alone) {
      end();
      if (++words % kWordsUnasked == 0 && base::Interrupted()) return;
    }
    if (space) continue;
    word += text.substr(from, at - from);
    ++characters;
    if (alone) end();
  }
  end();
}

void WordPieceTokenizer::EncodeWord(std::string_view word, std::vector<int>& out) const {
  const std::size_t before = out.size();
  for (std::size_t at = 0; at < word.size();) {
    std::size_t size = std::min(word.size() - at, piece_bytes_max_);
    auto found = pieces_.end();
    for (; size > 0; --size) {
      found = pieces_.find(word.substr(at, size));
      if (found != pieces_.end()) break;
    }
    if (size == 0 || (at == 0 && size <= kSpaceMark.size())) {
      out.resize(before);
      if (vocabulary_.unk >= 0) out.push_back(vocabulary_.unk);
      return;
    }
    out.push_back(found->second);
    at += size;
  }
}

std::string WordPieceTokenizer::BytesOf(int token) const {
  return UnmarkSpaces(vocabulary_.tokens[token]);
}

}  // namespace thermocline::text
