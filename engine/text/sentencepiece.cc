#include "engine/text/sentencepiece.h"

#include "engine/base/bytes.h"
#include "engine/text/bpe_merge.h"

namespace thermocline::text {

using model::TokenType;

std::vector<int> ByteTokens(const model::Vocabulary& vocabulary) {
  std::vector<int> tokens(256, -1);
  for (int id = 0; id < vocabulary.size(); ++id) {
    const std::size_t at = id;
    if (vocabulary.types[at] != TokenType::kByte &&
        vocabulary.kind == model::VocabularyKind::kSentencePiece)
      continue;
    const int byte = model::ParseByteToken(vocabulary.tokens[at]);
    if (byte >= 0) tokens[byte] = id;
  }
  return tokens;
}

std::string MarkSpaces(std::string_view text) {
  std::string out;
  out.reserve(text.size() * 2);
  for (const char c : text) {
    if (c == ' ') {
      out += kSpaceMark;
    } else {
      out.push_back(c);
    }
  }
  return out;
}

std::string UnmarkSpaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const bool mark = text.compare(pos, kSpaceMark.size(), kSpaceMark) == 0;
    out.push_back(mark ? ' ' : text[pos]);
    pos += mark ? kSpaceMark.size() : 1;
  }
  return out;
}

namespace {

// Strips spaces at both ends, and collapses runs of spaces to one.
std::string CollapseSpaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out.push_back(c);
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const model::Vocabulary& vocabulary)
    : Tokenizer(vocabulary), byte_tokens_(ByteTokens(vocabulary)) {
  pieces_.reserve(vocabulary_.tokens.size());
  for (int id = 0; id < vocabulary_.size(); ++id) {
    const std::size_t at = id;
    const TokenType type = vocabulary_.types[at];
    if (type == TokenType::kNormal || type == TokenType::kUserDefined)
      pieces_.emplace(vocabulary_.tokens[at], id);
  }
  for (const auto& [piece, id] : pieces_) cuts_.AddToken(piece);
}

void SentencePieceTokenizer::EncodePlain(std::string_view text, bool at_start,
                                         std::size_t piece_bytes, std::vector<int>& out) const {
  std::string clean =
      vocabulary_.remove_extra_whitespaces ? CollapseSpaces(text) : std::string(text);
  if (clean.empty()) return;
  if (vocabulary_.add_space_prefix && at_start) clean.insert(0, " ");
  ForEachPiece(MarkSpaces(clean), piece_bytes, cuts_,
               [&](std::string_view piece) { EncodeMarked(piece, out); });
}

void SentencePieceTokenizer::EncodeMarked(std::string_view text, std::vector<int>& out) const {
  std::vector<Symbol> symbols = MakeSymbols(text, false);
  const auto find_piece = [this](std::string_view piece) {
    const auto found = pieces_.find(piece);
    return found == pieces_.end() ? -1 : found->second;
  };
  std::size_t turn = 0;
  for (Symbol& symbol : symbols) {
    if (++turn % kTurnsUnasked == 0 && base::Interrupted()) return;
    symbol.id = find_piece(symbol.text);
  }
  MergeSymbols(symbols, [&](const Symbol& a, const Symbol& b) {
    const int id = find_piece(std::string_view(a.text.data(), a.text.size() + b.text.size()));
    return id < 0 ? Merge{} : Merge{true, -double{vocabulary_.scores[id]}, id};
  });
  for (int i = 0; i >= 0; i = symbols[i].next) {
    const Symbol& symbol = symbols[i];
    AppendSymbol(symbol.text, symbol.id, out);
  }
}

void SentencePieceTokenizer::AppendSymbol(std::string_view text, int id,
                                          std::vector<int>& out) const {
  if (id >= 0) {
    out.push_back(id);
    return;
  }
  const std::size_t before = out.size();
  for (const char c : text) {
    const int byte_token = byte_tokens_[base::ByteOf(c)];
    if (byte_token < 0) {  // no byte fallback: the character becomes one unknown token
      out.resize(before);
      if (vocabulary_.unk >= 0) out.push_back(vocabulary_.unk);
      return;
    }
    out.push_back(byte_token);
  }
}

std::string SentencePieceTokenizer::BytesOf(int token) const {
  const std::string& text = vocabulary_.tokens[token];
  if (vocabulary_.types[token] == TokenType::kByte)
    return std::string(1, static_cast<char>(model::ParseByteToken(text)));
  return UnmarkSpaces(text);
}

}  // namespace thermocline::text
