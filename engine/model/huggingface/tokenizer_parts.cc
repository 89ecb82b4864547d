#include "engine/model/huggingface/tokenizer_parts.h"

#include <algorithm>

#include "engine/model/pre_tokenizers.h"

namespace thermocline::model {
namespace {

// Rejects options of a pre-tokenizer step that would split differently from the supported ones.
Status CheckStep(const Json& step) {
  const auto is = [&step](const char* name, const Json& value) {
    const Json* found = step.Find(name);
    return found == nullptr || found->Dump() == value.Dump();
  };
  const Json* type = step.Find("type");
  const std::string name = type != nullptr && type->is_string() ? type->as_string() : "";
  bool plain = true;
  if (name == "Digits") plain = is("individual_digits", true);
  if (name == "Split") plain = is("behavior", "Isolated") && is("invert", false);
  if (plain) return OkStatus();
  return base::Unimplemented("the pre-tokenizer's step ", base::Shorten(step.Dump(), 200),
                             " is not supported");
}

// Adds the pattern by which a step splits, if it does.
Status AddPattern(const Json& step, bool alone, std::vector<std::string>& patterns, Vocabulary& v) {
  RETURN_IF_ERROR(CheckStep(step));
  if (IsTrue(step, "add_prefix_space")) {
    if (!alone)
      return base::Unimplemented(
          "'add_prefix_space' behind another pre-tokenizer is not "
          "supported");
    v.prefix_space = true;
  }
  const Json *type = step.Find("type"), *pattern = step.Find("pattern");
  const std::string name = type != nullptr && type->is_string() ? type->as_string() : "";
  const Json* regex = pattern != nullptr ? pattern->Find("Regex") : nullptr;
  if (name == "Split" && regex != nullptr && regex->is_string()) {
    patterns.push_back(regex->as_string());
  } else if (name == "Digits") {
    patterns.emplace_back(R"(\p{N})");
  } else if (name == "ByteLevel") {
    const Json* uses = step.Find("use_regex");
    const bool splits = uses == nullptr || !uses->is_bool() || uses->as_bool();
    if (splits) patterns.emplace_back(kByteLevelPattern);
  } else {
    return base::Unimplemented("the pre-tokenizer '", name, "' is not supported");
  }
  return OkStatus();
}

}  // namespace

bool IsTrue(const Json& object, const char* name) {
  const Json* value = object.Find(name);
  return value != nullptr && value->is_bool() && value->as_bool();
}

Result<std::string> PreTokenizerName(const Json& tokenizer, Vocabulary& v) {
  const Json* pre = tokenizer.Find("pre_tokenizer");
  if (pre == nullptr) return base::Unimplemented("field 'pre_tokenizer' is missing");
  const Json* list = pre->Find("pretokenizers");
  constexpr std::size_t kStepsMax = 16;
  if (list != nullptr && list->is_array() && list->as_array().size() > kStepsMax)
    return base::Unimplemented("more than ", kStepsMax, " pre-tokenizers are not supported");
  const Json::Array steps =
      list != nullptr && list->is_array() ? list->as_array() : Json::Array{*pre};
  std::vector<std::string> patterns;
  for (const Json& step : steps) RETURN_IF_ERROR(AddPattern(step, steps.size() == 1, patterns, v));
  const std::string_view name = PreTokenizerOf(patterns);
  if (!name.empty()) return std::string(name);
  return base::Unimplemented("the pre-tokenizer ", base::Shorten(pre->Dump(), 300),
                             " is not known");
}

int FindToken(const Vocabulary& v, std::string_view text) {
  const auto found = std::find(v.tokens.begin(), v.tokens.end(), text);
  return found == v.tokens.end() ? -1 : static_cast<int>(found - v.tokens.begin());
}

void ReadTemplate(const Json& processor, Vocabulary& v) {
  const Json* single = processor.is_object() ? processor.Find("single") : nullptr;
  if (single == nullptr || !single->is_array() || single->as_array().empty()) return;
  const auto special = [&](const Json& item) {
    const Json* token = item.Find("SpecialToken");
    const Json* id = token != nullptr ? token->Find("id") : nullptr;
    return id != nullptr && id->is_string() ? FindToken(v, id->as_string()) : -1;
  };
  const int first = special(single->as_array().front()), last = special(single->as_array().back());
  if (v.bos < 0 && first >= 0) {
    v.bos = first;
    v.add_bos = true;
  }
  if (v.eos < 0) v.eos = last;
  if (last >= 0 && last == v.eos) v.add_eos = true;
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
