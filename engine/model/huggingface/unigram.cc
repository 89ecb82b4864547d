#include "engine/model/huggingface/unigram.h"

#include <string_view>

#include "engine/base/base64.h"
#include "engine/base/strings.h"
#include "engine/model/huggingface/tokenizer_parts.h"

namespace thermocline::model {
namespace {

std::string TypeOf(const Json& step) {
  const Json* type = step.Find("type");
  return type != nullptr && type->is_string() ? type->as_string() : "";
}

// The steps of a normalizer or pre-tokenizer: one, or a sequence in the field `list`.
Json::Array StepsOf(const Json* whole, const char* list) {
  if (whole == nullptr || whole->is_null()) return {};
  const Json* steps = whole->Find(list);
  return steps != nullptr && steps->is_array() ? steps->as_array() : Json::Array{*whole};
}

Status Unsupported(const char* kind, const Json& step) {
  return base::Unimplemented("a Unigram tokenizer's ", kind, " ", base::Shorten(step.Dump(), 200),
                             " is not supported");
}

// The map of SentencePiece, and spaces that become one: words are divided at all of them anyway.
Status ReadNormalizer(const Json& tokenizer, Vocabulary& v) {
  for (const Json& step : StepsOf(tokenizer.Find("normalizer"), "normalizers")) {
    const std::string type = TypeOf(step);
    const Json* map = step.Find("precompiled_charsmap");
    if (type == "Precompiled" && map != nullptr && map->is_string() && v.charsmap.empty()) {
      auto bytes = base::FromBase64(map->as_string());
      if (!bytes.has_value())
        return base::DataLoss("field 'precompiled_charsmap' is not in base64");
      v.charsmap = *std::move(bytes);
    } else if (type == "Strip" ||
               (type == "Replace" && step.Dump().find(" {2,}") != std::string::npos)) {
      continue;
    } else {
      return Unsupported("normalizer", step);
    }
  }
  return OkStatus();
}

Status CheckWords(const Json& tokenizer) {
  bool marks = false;
  for (const Json& step : StepsOf(tokenizer.Find("pre_tokenizer"), "pretokenizers")) {
    const std::string type = TypeOf(step);
    const Json* scheme = step.Find("prepend_scheme");
    const bool first_only =
        scheme != nullptr && scheme->is_string() && scheme->as_string() != "always";
    if (type == "WhitespaceSplit") continue;
    if (type != "Metaspace" || first_only) return Unsupported("pre-tokenizer", step);
    marks = true;
  }
  return marks ? OkStatus()
               : base::Unimplemented("a Unigram tokenizer without Metaspace is not supported");
}

Status ReadPieces(const Json& model, Vocabulary& v) {
  const Json* vocab = model.Find("vocab");
  if (vocab == nullptr || !vocab->is_array())
    return base::DataLoss("field 'model.vocab' is no list");
  for (const Json& piece : vocab->as_array()) {
    const bool pair = piece.is_array() && piece.as_array().size() == 2 &&
                      piece.as_array()[0].is_string() && piece.as_array()[1].is_number();
    if (!pair) return base::DataLoss("model.vocab[", v.tokens.size(), "] is no text with a score");
    v.tokens.push_back(piece.as_array()[0].as_string());
    v.scores.push_back(static_cast<float>(piece.as_array()[1].as_double()));
    v.types.push_back(TokenType::kNormal);
  }
  return OkStatus();
}

Status ReadAdded(const Json& tokenizer, Vocabulary& v) {
  const Json* added = tokenizer.Find("added_tokens");
  if (added == nullptr || !added->is_array()) return OkStatus();
  const std::size_t most = v.tokens.size() + added->as_array().size();
  for (const Json& token : added->as_array()) {
    const Json *content = token.Find("content"), *id = token.Find("id");
    const bool good = content != nullptr && content->is_string() && id != nullptr && id->is_int() &&
                      id->as_int() >= 0 && static_cast<std::size_t>(id->as_int()) < most;
    if (!good) return base::DataLoss("added_tokens: one lacks content, or an id below ", most);
    const std::size_t at = id->as_int();
    while (v.tokens.size() <= at) {
      v.tokens.push_back(StrCat("[UNUSED", v.tokens.size(), "]"));
      v.scores.push_back(0);
      v.types.push_back(TokenType::kUnused);
    }
    v.tokens[at] = content->as_string();
    v.types[at] = IsTrue(token, "special") ? TokenType::kControl : TokenType::kUserDefined;
    if (const TokenEdges edges = EdgesOf(token); edges.any()) v.edges[static_cast<int>(at)] = edges;
  }
  return OkStatus();
}

}  // namespace

Status ParseUnigram(const Json& tokenizer, const Json& model, Vocabulary& v) {
  v.kind = VocabularyKind::kUnigram;
  RETURN_IF_ERROR(ReadNormalizer(tokenizer, v));
  RETURN_IF_ERROR(CheckWords(tokenizer));
  if (IsTrue(model, "byte_fallback"))
    return base::Unimplemented("a Unigram tokenizer with byte_fallback is not supported");
  RETURN_IF_ERROR(ReadPieces(model, v));
  RETURN_IF_ERROR(ReadAdded(tokenizer, v));
  const Json* unknown = model.Find("unk_id");
  v.unk = unknown != nullptr && unknown->is_int() && unknown->as_int() < v.size()
              ? static_cast<int>(unknown->as_int())
              : -1;
  if (v.unk >= 0) v.types[v.unk] = TokenType::kUnknown;
  v.bos = FindToken(v, "<s>");
  v.eos = FindToken(v, "</s>");
  v.pad = FindToken(v, "<pad>");
  v.add_bos = v.bos >= 0;
  v.add_eos = v.eos >= 0;
  v.add_space_prefix = v.remove_extra_whitespaces = true;
  return ValidateVocabulary(v);
}

}  // namespace thermocline::model
