#include "engine/model/infill_tokens.h"

#include <string_view>
#include <vector>

#include "engine/model/vocabulary.h"

namespace thermocline::model {
namespace {

struct NamedToken {
  int InfillTokens::*token;
  std::vector<std::string_view> names;
};

// Qwen and CodeGemma; Granite and Refact; StarCoder; DeepSeek; CodeLlama; GLM.
const std::vector<NamedToken>& TokenNames() {
  static const std::vector<NamedToken> names = {
      {&InfillTokens::prefix,
       {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>",
        "<|code_prefix|>"}},
      {&InfillTokens::suffix,
       {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>",
        "<|code_suffix|>"}},
      {&InfillTokens::middle,
       {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>",
        "<|code_middle|>"}},
      {&InfillTokens::pad, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>"}},
      {&InfillTokens::repository,
       {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<repo_name>"}},
      {&InfillTokens::separator, {"<|file_sep|>", "<|file_separator|>", "<file_sep>"}}};
  return names;
}

}  // namespace

InfillTokens FindInfillTokens(const Vocabulary& vocabulary) {
  InfillTokens out;
  for (int id = 0; id < vocabulary.size(); ++id) {
    const std::string_view token = vocabulary.tokens[id];
    if (token.size() < 5 || token.size() > 24) continue;
    for (const auto& [member, names] : TokenNames()) {
      for (const std::string_view name : names)
        if (token == name && out.*member < 0) out.*member = id;
    }
  }
  return out;
}

}  // namespace thermocline::model
