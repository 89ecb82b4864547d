#include "engine/text/tokenizer.h"

#include <algorithm>

#include "engine/base/bytes.h"
#include "engine/base/interruption.h"
#include "engine/text/byte_bpe.h"
#include "engine/text/sentencepiece.h"
#include "engine/text/unicode_text.h"
#include "engine/text/unigram.h"
#include "engine/text/word_piece.h"

namespace thermocline::text {

using model::TokenType;
using model::VocabularyKind;

namespace {
// Bytes and tokens processed between two checks for interruption, in less than 1 ms.
constexpr std::size_t kBytesUnasked = 64 << 10, kTokensUnasked = 16 << 10;
}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::Create(const model::Vocabulary& vocabulary) {
  std::unique_ptr<Tokenizer> tokenizer;
  switch (vocabulary.kind) {
    case VocabularyKind::kNone:
      return base::FailedPrecondition("the model file holds no tokenizer");
    case VocabularyKind::kSentencePiece:
      tokenizer = std::make_unique<SentencePieceTokenizer>(vocabulary);
      break;
    case VocabularyKind::kWordPiece:
      tokenizer = std::make_unique<WordPieceTokenizer>(vocabulary);
      break;
    case VocabularyKind::kUnigram: {
      ASSIGN_OR_RETURN(Charsmap charsmap, Charsmap::Parse(vocabulary.charsmap));
      tokenizer = std::make_unique<UnigramTokenizer>(vocabulary, std::move(charsmap));
      break;
    }
    case VocabularyKind::kByteLevelBpe:
    case VocabularyKind::kSpaceBpe: {
      const bool spaces = vocabulary.kind == VocabularyKind::kSpaceBpe;
      ASSIGN_OR_RETURN(auto pre,
                       PreTokenizer::Create(spaces ? "gemma4" : vocabulary.pre_tokenizer));
      tokenizer = std::make_unique<BpeTokenizer>(vocabulary, std::move(pre));
      break;
    }
  }
  tokenizer->BuildIndex();
  return tokenizer;
}

Tokenizer::Tokenizer(const model::Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

void Tokenizer::BuildIndex() {
  const model::Vocabulary& v = vocabulary_;
  is_stop_.assign(v.tokens.size(), false);
  for (const int id : v.stop_ids) is_stop_[id] = true;
  for (const int id : {v.eos, v.eot}) {
    if (id >= 0) is_stop_[id] = true;
  }
  bytes_.reserve(v.tokens.size());
  for (int id = 0; id < v.size(); ++id) {
    const std::size_t at = id;
    bytes_.push_back(BytesOf(id));
    token_bytes_max_ = std::max(token_bytes_max_, v.tokens[at].size());
    const bool control = v.types[at] == TokenType::kControl || v.types[at] == TokenType::kUnknown;
    if ((!control && v.types[at] != TokenType::kUserDefined) || v.tokens[at].empty()) continue;
    const auto edges = v.edges.find(id);
    specials_by_byte_[base::ByteOf(v.tokens[at][0])].push_back(
        {v.tokens[at], id, control, edges == v.edges.end() ? model::TokenEdges() : edges->second});
  }
  for (auto& specials : specials_by_byte_) {
    std::stable_sort(specials.begin(), specials.end(),
                     [](const Special& a, const Special& b) { return a.text < b.text; });
  }
}

bool Tokenizer::Fits(const Special& special, const Source& source, std::size_t pos) {
  const std::size_t size = special.text.size();
  return (!special.control || source.ReadsControl(pos, size)) &&
         (!special.edges.single_word || IsAlone(source.text, pos, size));
}

// The sorted texts that begin like the text at `pos` are narrowed byte by byte.
const Tokenizer::Special* Tokenizer::MatchSpecial(const Source& source, std::size_t pos,
                                                  std::size_t& work) const {
  const std::string_view text = source.text.substr(pos);
  std::span<const Special> like = specials_by_byte_[base::ByteOf(text[0])];
  const Special* longest = nullptr;
  for (std::size_t size = 1; !like.empty(); ++size, ++work) {
    for (; !like.empty() && like[0].text.size() == size; like = like.subspan(1)) {
      const bool longer = longest == nullptr || longest->text.size() < size;
      if (longer && Fits(like[0], source, pos)) longest = &like[0];
    }
    if (size == text.size()) break;
    const std::uint8_t byte = base::ByteOf(text[size]);
    const auto at = [&](const Special& special) { return base::ByteOf(special.text[size]); };
    const auto begin = std::partition_point(
        like.begin(), like.end(), [&](const Special& special) { return at(special) < byte; });
    const auto end = std::partition_point(
        begin, like.end(), [&](const Special& special) { return at(special) == byte; });
    like = {begin, end};
  }
  return longest;
}

bool Tokenizer::IsAlone(std::string_view text, std::size_t pos, std::size_t size) {
  std::size_t before = pos, behind = pos + size;
  while (before > 0 && (base::ByteOf(text[--before]) & 0xC0) == 0x80) continue;
  return (pos == 0 || !IsWord(base::DecodeUtf8(text, before))) &&
         (behind == text.size() || !IsWord(base::DecodeUtf8(text, behind)));
}

std::vector<int> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<int> out;
  if (options.add_bos && vocabulary_.bos >= 0) out.push_back(vocabulary_.bos);
  EncodeSource(
      {.text = text, .control_tokens = options.control_tokens, .piece_bytes = options.piece_bytes},
      out);
  return out;
}

std::vector<int> Tokenizer::Encode(const TemplateText& prompt) const {
  std::vector<int> out;
  EncodeSource({.text = prompt.bytes(), .prompt = &prompt}, out);
  return out;
}

void Tokenizer::EncodeSource(const Source& source, std::vector<int>& out) const {
  const std::string_view text = source.text;
  std::size_t begin = 0;
  bool at_start = true;
  std::size_t work = 0;
  for (std::size_t pos = 0; pos < text.size();) {
    if (++work >= kBytesUnasked) {
      work = 0;
      if (base::Interrupted()) return;
    }
    const Special* special = MatchSpecial(source, pos, work);
    if (special == nullptr) {
      ++pos;
      continue;
    }
    if (base::Interrupted()) return;
    std::string_view between = text.substr(begin, pos - begin);
    if (special->edges.left_strip) between.remove_suffix(SpaceBytesAtEnd(between));
    EncodeBetween(between, at_start, source.piece_bytes, out);
    out.push_back(special->id);
    at_start = true;
    pos += special->text.size();
    if (special->edges.right_strip) pos += SpaceBytesAtBegin(text.substr(pos));
    begin = pos;
  }
  EncodeBetween(text.substr(begin), at_start, source.piece_bytes, out);
}

void Tokenizer::EncodeBetween(std::string_view text, bool at_start, std::size_t piece_bytes,
                              std::vector<int>& out) const {
  if (text.empty()) return;
  EncodePlain(Normalized(base::ReplaceInvalidUtf8(text), vocabulary_.normalizers), at_start,
              piece_bytes, out);
}

const std::string& Tokenizer::TokenBytes(int token, bool control_tokens) const {
  static const std::string kNothing;
  const std::size_t at = token;
  const bool control =
      vocabulary_.types[at] == TokenType::kControl || vocabulary_.types[at] == TokenType::kUnknown;
  return control && !control_tokens ? kNothing : bytes_[at];
}

std::string Tokenizer::Decode(const std::vector<int>& tokens, bool control_tokens) const {
  std::string bytes;
  bool at_start = true;
  std::size_t turn = 0;
  for (const int token : tokens) {
    if (++turn % kTokensUnasked == 0 && base::Interrupted()) break;
    const std::string& piece = TokenBytes(token, control_tokens);
    const bool added_space = at_start && vocabulary_.add_space_prefix && piece.starts_with(' ');
    bytes += added_space ? piece.substr(1) : piece;
    if (token != vocabulary_.bos) at_start = false;
  }
  return base::ReplaceInvalidUtf8(bytes);
}

}  // namespace thermocline::text
