// Source: the pre-tokenizer patterns of the models' published tokenizer.json files; GGUF's names
// for them.
#include "engine/model/pre_tokenizers.h"

#include <algorithm>
#include <string>

#include "engine/base/strings.h"

namespace thermocline::model {
namespace {

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kSeed =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Words may hold single spaces.
constexpr const char* kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
// Gpt4o's pattern without Han characters, which are separate words.
constexpr const char* kKimi =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kCjkRuns = R"([\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+)";
// Scripts without spaces between words.
constexpr const char* kAsianRuns =
    R"([一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+)";
constexpr const char* kDeepseekWords =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr const char* kLines = R"([^\n]+|[\n]+)";

}  // namespace

const char* const kByteLevelPattern = kGpt2;

const std::vector<PreTokenizerRecipe>& PreTokenizerRecipes() {
  static const std::vector<PreTokenizerRecipe> kRecipes = {
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "default-gpt2",
        "exaone4", "gigachat", "mellum", "modern-bert", "jina-es", "jina-de", "jina-v2-es",
        "jina-v2-de", "a.x-4.0"},
       {kGpt2}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
        "mellum2"},
       {R"(\p{N})", kGpt2}},
      {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", R"([0-9][0-9][0-9])"}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"}, {kLlama3}, true},
      {{"glm4", "glm5"}, {kLlama3}, true},
      {{"smaug-bpe", "dbrx", "chatglm-bpe"}, {kLlama3}},
      {{"seed-coder"}, {kSeed}},
      {{"kimi-k2"}, {R"(\p{Han}+)", kKimi}},
      {{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"}, {kQwen2}},
      {{"qwen35"}, {kQwen35}},
      {{"tekken"}, {kTekken}, true},
      {{"gpt-4o", "llama4", "minimax-m2"}, {kGpt4o}},
      {{"cohere2moe", "tiny_aya"}, {kDigitGroups, kGpt4o}},
      {{"exaone-moe"}, {kExaoneMoe}},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, R"([0-9][0-9][0-9])"}},
      {{"deepseek-llm"},
       {R"([\r\n])", R"(\s?[\p{Lu}\p{Ll}\p{Lt}]+)", R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
        kTrailingSpace, kCjkRuns, R"(\p{N}+)"}},
      {{"deepseek-coder"}, {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kCjkRuns, R"(\p{N})"}},
      {{"deepseek-v3", "hunyuan-dense"},
       {R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)", kDeepseekWords}},
      {{"afmoe"}, {kNumberGroups, kAsianRuns, kDeepseekWords}},
      {{"laguna"}, {kLines, kQwen2}},
      {{"gemma4"}, {kLines}},
  };
  return kRecipes;
}

namespace {

void Replace(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// A pattern as this file would write it: files write line ends and numbers of repetitions in
// several ways, and two patterns are applied by hand here.
std::string Canonical(std::string pattern) {
  Replace(pattern, "\r", R"(\r)");
  Replace(pattern, "\n", R"(\n)");
  Replace(pattern, "{1}", "");
  if (pattern == R"(\d{1,3}(?=(?:\d{3})*\b))") return kDigitGroups;
  for (const std::string_view after : {R"((?!\p{N}))", R"(\b)", "$"})
    if (pattern == StrCat(R"(\p{N}{1,3}(?=(?:\p{N}{3})*)", after, ")")) return kNumberGroups;
  return pattern;
}

}  // namespace

std::string_view PreTokenizerOf(std::vector<std::string> patterns) {
  for (std::string& pattern : patterns) pattern = Canonical(std::move(pattern));
  for (const PreTokenizerRecipe& recipe : PreTokenizerRecipes()) {
    const bool same = std::equal(recipe.patterns.begin(), recipe.patterns.end(), patterns.begin(),
                                 patterns.end());
    if (same) return recipe.names.front();
  }
  return "";
}

}  // namespace thermocline::model
