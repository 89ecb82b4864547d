#include "engine/text/byte_bpe.h"

#include <array>
#include <optional>

#include "engine/base/bytes.h"
#include "engine/base/interruption.h"
#include "engine/text/bpe_merge.h"
#include "engine/text/sentencepiece.h"

namespace thermocline::text {
namespace {

using model::TokenType;

// GPT-2 represents each byte by a printable character: itself, or for the others U+0100 and
// following, in order. Source: GPT-2's bytes_to_unicode.
std::array<char32_t, 256> ByteAlphabet() {
  std::array<char32_t, 256> alphabet{};
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    alphabet[b] = printable ? b : next++;
  }
  return alphabet;
}

// The bytes that `text` represents in GPT-2's alphabet; nullopt if a character is outside it
// (merging can never produce such tokens).
std::optional<std::string> FromAlphabet(std::string_view text) {
  static const std::unordered_map<char32_t, char> kBytes = [] {
    std::unordered_map<char32_t, char> map;
    const auto alphabet = ByteAlphabet();
    for (std::size_t b = 0; b < alphabet.size(); ++b) map[alphabet[b]] = static_cast<char>(b);
    return map;
  }();
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const auto found = kBytes.find(base::DecodeUtf8(text, pos));
    if (found == kBytes.end()) return std::nullopt;
    out.push_back(found->second);
  }
  return out;
}

std::uint64_t PairKey(int left, int right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

}  // namespace

BpeTokenizer::BpeTokenizer(const model::Vocabulary& vocabulary,
                           std::unique_ptr<PreTokenizer> pre_tokenizer)
    : Tokenizer(vocabulary),
      byte_level_(vocabulary.kind == model::VocabularyKind::kByteLevelBpe),
      pre_tokenizer_(std::move(pre_tokenizer)) {
  ids_.reserve(vocabulary_.tokens.size());
  for (int id = 0; id < vocabulary_.size(); ++id) {
    const std::size_t at = id;
    // An added token may also be in the vocabulary.
    const TokenType type = vocabulary_.types[at];
    if (type != TokenType::kNormal && type != TokenType::kUserDefined) continue;
    const std::optional<std::string> bytes =
        byte_level_ ? FromAlphabet(vocabulary_.tokens[at]) : vocabulary_.tokens[at];
    if (bytes.has_value()) ids_.emplace(*bytes, id);
  }
  AddMerges();
  if (byte_level_) {
    cuts_words_ = pre_tokenizer_->Split("a b").size() == 2;
    for (int b = 0; b < 256; ++b)
      byte_tokens_.push_back(Find(std::string(1, static_cast<char>(b))));
  } else {
    byte_tokens_ = ByteTokens(vocabulary_);
    for (const auto& [token, id] : ids_) cuts_.AddToken(token);
  }
}

int BpeTokenizer::FindOrAdd(const std::string& token) {
  if (const auto found = ids_.find(token); found != ids_.end()) return found->second;
  return ids_.emplace(token, vocabulary_.size() + num_parts_++).first->second;
}

int BpeTokenizer::Find(const std::string& token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

void BpeTokenizer::AddMerges() {
  merges_.reserve(vocabulary_.merges.size());
  int rank = 0;
  for (const std::string& merge : vocabulary_.merges) {
    const std::size_t space = merge.find(' ', 1);  // a part may itself begin with a space
    if (space == std::string::npos) continue;
    std::string left = merge.substr(0, space), right = merge.substr(space + 1);
    if (byte_level_) {
      left = FromAlphabet(left).value_or(left);
      right = FromAlphabet(right).value_or(right);
    }
    const int left_id = FindOrAdd(left), right_id = FindOrAdd(right);
    merges_.emplace(PairKey(left_id, right_id), Rule{rank++, FindOrAdd(left + right)});
  }
}

void BpeTokenizer::EncodePlain(std::string_view text, bool at_start, std::size_t piece_bytes,
                               std::vector<int>& out) const {
  const auto encode = [&](std::string_view piece) { EncodeWords(piece, out); };
  if (byte_level_) {
    const bool prefixed = vocabulary_.prefix_space && !text.starts_with(' ');
    const std::string with_space = prefixed ? " " + std::string(text) : "";
    const std::string_view whole = prefixed ? with_space : text;
    ForEachPiece(whole, cuts_words_ ? piece_bytes : whole.size(), IsBetweenWords, encode);
    return;
  }
  const std::string marked = MarkSpaces(
      vocabulary_.add_space_prefix && at_start ? " " + std::string(text) : std::string(text));
  ForEachPiece(marked, piece_bytes, cuts_, encode);
}

void BpeTokenizer::EncodeWords(std::string_view text, std::vector<int>& out) const {
  for (const std::string_view word : pre_tokenizer_->Split(text)) {
    if (base::Interrupted()) return;
    EncodeWord(word, out);
  }
}

void BpeTokenizer::EncodeWord(std::string_view word, std::vector<int>& out) const {
  const bool newlines = !byte_level_ && word.find_first_not_of('\n') == std::string_view::npos;
  if (vocabulary_.ignore_merges.value_or(pre_tokenizer_->ignore_merges()) || newlines) {
    if (const int whole = Find(std::string(word)); whole >= 0 && whole < vocabulary_.size()) {
      out.push_back(whole);
      return;
    }
  }
  std::vector<Symbol> symbols = MakeSymbols(word, byte_level_);
  for (Symbol& symbol : symbols) {
    symbol.id =
        byte_level_ ? byte_tokens_[base::ByteOf(symbol.text[0])] : Find(std::string(symbol.text));
  }
  MergeSymbols(symbols, [this](const Symbol& a, const Symbol& b) {
    const auto rule = merges_.find(PairKey(a.id, b.id));
    return rule == merges_.end()
               ? Merge{}
               : Merge{true, static_cast<double>(rule->second.rank), rule->second.merged};
  });
  for (int i = 0; i >= 0; i = symbols[i].next) {
    const Symbol& symbol = symbols[i];
    if (symbol.id >= 0 && symbol.id < vocabulary_.size()) {
      out.push_back(symbol.id);
      continue;
    }
    for (const char c : symbol.text) {
      const int byte_token = byte_tokens_[base::ByteOf(c)];
      if (byte_token >= 0 && byte_token < vocabulary_.size()) {
        out.push_back(byte_token);
      } else if (vocabulary_.unk >= 0) {
        out.push_back(vocabulary_.unk);
      }
    }
  }
}

std::string BpeTokenizer::BytesOf(int token) const {
  const std::string& text = vocabulary_.tokens[token];
  if (vocabulary_.types[token] != TokenType::kNormal && byte_level_) return text;
  if (byte_level_) return FromAlphabet(text).value_or(text);
  const int byte = model::ParseByteToken(text);
  return byte >= 0 ? std::string(1, static_cast<char>(byte)) : UnmarkSpaces(text);
}

}  // namespace thermocline::text
