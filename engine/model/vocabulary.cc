#include "engine/model/vocabulary.h"

namespace thermocline::model {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

int ParseByteToken(const std::string& token) {
  if (token.size() != 6 || token.compare(0, 3, "<0x") != 0 || token[5] != '>') return -1;
  const int high = HexDigit(token[3]), low = HexDigit(token[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

Status ValidateVocabulary(const Vocabulary& v) {
  if (v.kind == VocabularyKind::kNone) return OkStatus();
  if (v.tokens.empty())
    return base::InvalidArgument("tokenizer.ggml.tokens: the vocabulary is empty");
  if (v.types.size() != v.tokens.size()) {
    return base::InvalidArgument("tokenizer.ggml.token_type has ", v.types.size(),
                                 " entries, the vocabulary ", v.tokens.size());
  }
  if (v.kind == VocabularyKind::kSentencePiece && v.scores.size() != v.tokens.size()) {
    return base::InvalidArgument("tokenizer.ggml.scores has ", v.scores.size(),
                                 " entries, the vocabulary ", v.tokens.size());
  }
  const auto check_id = [&](const char* name, int id) {
    if (id >= -1 && id < v.size()) return OkStatus();
    return base::InvalidArgument("tokenizer.ggml.", name, "_token_id is ", id,
                                 ", beyond the vocabulary of ", v.size());
  };
  RETURN_IF_ERROR(check_id("bos", v.bos));
  RETURN_IF_ERROR(check_id("eos", v.eos));
  RETURN_IF_ERROR(check_id("eot", v.eot));
  RETURN_IF_ERROR(check_id("unknown", v.unk));
  RETURN_IF_ERROR(check_id("padding", v.pad));
  for (const int id : v.stop_ids) RETURN_IF_ERROR(check_id("stop", id));
  for (std::size_t i = 0; i < v.tokens.size(); ++i) {
    if (v.types[i] == TokenType::kByte && ParseByteToken(v.tokens[i]) < 0) {
      return base::InvalidArgument("tokenizer.ggml.tokens[", i,
                                   "] is a byte token but not of the form <0xHH>");
    }
  }
  return OkStatus();
}

}  // namespace thermocline::model
