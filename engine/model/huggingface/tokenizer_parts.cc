#include "engine/model/huggingface/tokenizer_parts.h"

#include <algorithm>
#include <map>

namespace thermocline::model {
namespace {

// Rejects options of a pre-tokenizer step that would split differently from the supported ones.
// `split`: an earlier step has split the text by a pattern.
Status CheckStep(const Json& step, bool split) {
  const auto is = [&step](const char* name, const Json& value) {
    const Json* found = step.Find(name);
    return found == nullptr || found->Dump() == value.Dump();
  };
  const Json* type = step.Find("type");
  const std::string name = type != nullptr && type->is_string() ? type->as_string() : "";
  bool plain = true;
  if (name == "ByteLevel") plain = is("use_regex", !split);
  if (name == "Digits") plain = is("individual_digits", true);
  if (name == "Split") plain = is("behavior", "Isolated") && is("invert", false);
  if (plain) return OkStatus();
  return base::Unimplemented("the pre-tokenizer's step ", base::Shorten(step.Dump(), 200),
                             " is not supported");
}

}  // namespace

bool IsTrue(const Json& object, const char* name) {
  const Json* value = object.Find(name);
  return value != nullptr && value->is_bool() && value->as_bool();
}

Result<std::string> PreTokenizerName(const Json& tokenizer, Vocabulary& v) {
  static const std::map<std::string, std::string> kNames = {
      {"ByteLevel", "gpt-2"},
      {"Digits ByteLevel", "smollm"},
      {R"(Split:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ ByteLevel)",
       "llama-bpe"},
      {R"(Split:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ ByteLevel)",
       "qwen2"},
      {R"(Split:(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ ByteLevel)",
       "qwen35"},
  };
  const Json* pre = tokenizer.Find("pre_tokenizer");
  if (pre == nullptr) return base::Unimplemented("field 'pre_tokenizer' is missing");
  const Json* list = pre->Find("pretokenizers");
  constexpr std::size_t kStepsMax = 16;
  if (list != nullptr && list->is_array() && list->as_array().size() > kStepsMax)
    return base::Unimplemented("more than ", kStepsMax, " pre-tokenizers are not supported");
  const Json::Array steps =
      list != nullptr && list->is_array() ? list->as_array() : Json::Array{*pre};
  std::string signature;
  for (const Json& step : steps) {
    const Json *type = step.Find("type"), *pattern = step.Find("pattern");
    if (!signature.empty()) signature += ' ';
    if (type != nullptr && type->is_string()) signature += type->as_string();
    RETURN_IF_ERROR(CheckStep(
        step, signature.find("Split:") != std::string::npos && !signature.ends_with("Split")));
    if (IsTrue(step, "add_prefix_space")) {
      if (steps.size() > 1)
        return base::Unimplemented(
            "'add_prefix_space' behind another pre-tokenizer is not "
            "supported");
      v.prefix_space = true;
    }
    const Json* regex = pattern != nullptr ? pattern->Find("Regex") : nullptr;
    if (regex != nullptr && regex->is_string()) signature += ":" + regex->as_string();
  }
  const auto found = kNames.find(signature);
  if (found == kNames.end())
    return base::Unimplemented("the pre-tokenizer '", signature, "' is not known");
  return found->second;
}

TokenEdges EdgesOf(const Json& token) {
  return {.left_strip = IsTrue(token, "lstrip"),
          .right_strip = IsTrue(token, "rstrip"),
          .single_word = IsTrue(token, "single_word")};
}

Status CheckNormalized(const Json& token, const Vocabulary& v) {
  const bool changes =
      std::any_of(v.normalizers.begin(), v.normalizers.end(), [](Normalization form) {
        return form != Normalization::kNfc && form != Normalization::kNfd;
      });
  if (!changes || !IsTrue(token, "normalized")) return OkStatus();
  return base::Unimplemented("the added token ", token.Find("content")->Dump(),
                             " is normalized, which is not supported with this normalizer");
}

Status ReadNormalizers(const Json* normalizer, Vocabulary& v) {
  if (normalizer == nullptr) return OkStatus();
  const Json* type = normalizer->Find("type");
  const std::string name = type != nullptr && type->is_string() ? type->as_string() : "";
  if (name == "Sequence") {
    const Json* list = normalizer->Find("normalizers");
    if (list == nullptr || !list->is_array())
      return base::DataLoss("field 'normalizer.normalizers' is no list");
    for (const Json& each : list->as_array()) RETURN_IF_ERROR(ReadNormalizers(&each, v));
    return OkStatus();
  }
  const bool spaces = v.kind == VocabularyKind::kSentencePiece &&
                      normalizer->Dump().find("\u2581") != std::string::npos &&
                      (name == "Prepend" || name == "Replace");
  if (spaces) return OkStatus();
  const auto form = ParseNormalization(name);
  // A StripAccents outside BertNormalizer also removes marks that have a width.
  if (!form.has_value() || *form == Normalization::kStripAccents)
    return base::Unimplemented("the normalizer '", base::Shorten(normalizer->Dump(), 200),
                               "' is not supported");
  RETURN_IF_ERROR(AddNormalizer(*form, v));
  return OkStatus();
}

Status CheckBert(const Json& tokenizer, const Json& model, Vocabulary& v) {
  const auto of_type = [&](const char* field, const char* name) -> const Json* {
    const Json* part = tokenizer.Find(field);
    const Json* type = part != nullptr ? part->Find("type") : nullptr;
    return type != nullptr && type->is_string() && type->as_string() == name ? part : nullptr;
  };
  const Json* normalizer = of_type("normalizer", "BertNormalizer");
  if (normalizer == nullptr || of_type("pre_tokenizer", "BertPreTokenizer") == nullptr)
    return base::Unimplemented("a WordPiece tokenizer without BertNormalizer and BertPreTokenizer ",
                               "is not supported");
  const Json* prefix = model.Find("continuing_subword_prefix");
  if (prefix != nullptr && prefix->Dump() != "\"##\"")
    return base::Unimplemented("continuing_subword_prefix ", prefix->Dump(), " is not supported");
  for (const char* flag : {"clean_text", "handle_chinese_chars"})
    if (!IsTrue(*normalizer, flag))
      return base::Unimplemented("the normalizer's '", flag, "' = false is not supported");
  const bool lower = IsTrue(*normalizer, "lowercase");
  const Json* strip = normalizer->Find("strip_accents");
  const bool strips = strip != nullptr && strip->is_bool() ? strip->as_bool() : lower;
  if (strips) v.normalizers = {Normalization::kNfd, Normalization::kStripAccents};
  if (lower) v.normalizers.push_back(Normalization::kLowercase);
  return OkStatus();
}

}  // namespace thermocline::model
