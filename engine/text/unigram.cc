#include "engine/text/unigram.h"

#include <algorithm>
#include <span>

#include "engine/base/bytes.h"
#include "engine/base/interruption.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/unicode_text.h"

namespace thermocline::text {
namespace {

constexpr float kUnknownPenalty = 10;  // below the least score. Source: SentencePiece

}  // namespace

UnigramTokenizer::UnigramTokenizer(const model::Vocabulary& vocabulary, Charsmap charsmap)
    : Tokenizer(vocabulary), charsmap_(std::move(charsmap)) {
  float least = 0;
  for (int id = 0; id < vocabulary_.size(); ++id) {
    const model::TokenType type = vocabulary_.types[id];
    const bool piece = type == model::TokenType::kNormal || type == model::TokenType::kUserDefined;
    if (!piece || vocabulary_.tokens[id].empty()) continue;
    pieces_.push_back({vocabulary_.tokens[id], id});
    least = std::min(least, vocabulary_.scores[id]);
  }
  unknown_score_ = least - kUnknownPenalty;
  std::stable_sort(pieces_.begin(), pieces_.end(),
                   [](const Piece& a, const Piece& b) { return a.text < b.text; });
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    auto& [begin, end] = by_byte_[base::ByteOf(pieces_[i].text[0])];
    if (end == 0) begin = i;
    end = i + 1;
  }
}

void UnigramTokenizer::EncodePlain(std::string_view text, bool, std::size_t,
                                   std::vector<int>& out) const {
  const std::string normal = charsmap_.Apply(text);
  std::vector<Way> ways;
  std::string word(kSpaceMark);
  const auto end = [&] {
    if (word.size() > kSpaceMark.size()) EncodeWord(word, ways, out);
    word = kSpaceMark;
  };
  for (std::size_t at = 0; at < normal.size();) {
    const std::size_t from = at;
    const char32_t c = base::DecodeUtf8(normal, at);
    if (IsSpace(c)) {
      end();
      if (base::Interrupted()) return;
    } else {
      word += std::string_view(normal).substr(from, at - from);
    }
  }
  end();
}

void UnigramTokenizer::EncodeWord(std::string_view word, std::vector<Way>& ways,
                                  std::vector<int>& out) const {
  constexpr std::size_t kUnasked = 256;  // characters between two checks for interruption
  ways.assign(word.size() + 1, {});
  std::size_t turn = 0;
  for (std::size_t at = 0; at < word.size();) {
    if (++turn % kUnasked == 0 && base::Interrupted()) return;
    std::size_t end = at;
    base::DecodeUtf8(word, end);
    const bool known = Extend(word, at, end - at, ways);
    const float score = ways[at].score + unknown_score_;
    if (!known && (ways[end].token < 0 || score > ways[end].score))
      ways[end] = {score, vocabulary_.unk, at};
    at = end;
  }
  const std::size_t before = out.size();
  for (std::size_t at = word.size(); at > 0; at = ways[at].begin) {
    // Unknown characters in a row are one token. Source: tokenizers, fuse_unk.
    const int token = ways[at].token;
    const bool again = out.size() > before && out.back() == vocabulary_.unk;
    if (token >= 0 && !(again && token == vocabulary_.unk)) out.push_back(token);
  }
  std::reverse(out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
}

// The sorted pieces that begin like the word at `at` are narrowed byte by byte.
bool UnigramTokenizer::Extend(std::string_view word, std::size_t at, std::size_t size,
                              std::vector<Way>& ways) const {
  const std::string_view rest = word.substr(at);
  const auto [first, last] = by_byte_[base::ByteOf(rest[0])];
  std::span<const Piece> like = std::span(pieces_).subspan(first, last - first);
  bool known = false;
  for (std::size_t length = 1; !like.empty(); ++length) {
    if (like[0].text.size() == length) {
      const Piece& piece = like[0];
      Way& way = ways[at + length];
      const float score = ways[at].score + vocabulary_.scores[piece.id];
      if (way.token < 0 || score > way.score) way = {score, piece.id, at};
      known = known || length == size;
      while (!like.empty() && like[0].text.size() == length) like = like.subspan(1);
    }
    if (length == rest.size()) break;
    const std::uint8_t byte = base::ByteOf(rest[length]);
    const auto of = [&](const Piece& piece) { return base::ByteOf(piece.text[length]); };
    const auto begin = std::partition_point(like.begin(), like.end(),
                                            [&](const Piece& piece) { return of(piece) < byte; });
    const auto end = std::partition_point(begin, like.end(),
                                          [&](const Piece& piece) { return of(piece) == byte; });
    like = {begin, end};
  }
  return known;
}

std::string UnigramTokenizer::BytesOf(int token) const {
  return UnmarkSpaces(vocabulary_.tokens[token]);
}

}  // namespace thermocline::text
