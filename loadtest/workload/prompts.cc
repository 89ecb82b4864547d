#include "loadtest/workload/prompts.h"

#include <algorithm>
#include <cmath>

#include "loadtest/workload/json_lines.h"

namespace thermocline::loadtest {
namespace {

constexpr const char* kWords[] = {
    "the",   "a",    "and",   "river", "stone", "house",  "bird",   "owl",   "fox",    "tree",
    "wind",  "rain", "sun",   "moon",  "star",  "night",  "day",    "road",  "field",  "garden",
    "door",  "key",  "lamp",  "book",  "song",  "dance",  "run",    "walk",  "sleep",  "dream",
    "find",  "lose", "give",  "take",  "hold",  "carry",  "bring",  "send",  "call",   "answer",
    "small", "big",  "old",   "new",   "red",   "blue",   "green",  "gold",  "warm",   "cold",
    "soft",  "loud", "quiet", "happy", "brave", "kind",   "clever", "slow",  "quick",  "deep",
    "boat",  "ship", "sea",   "wave",  "shore", "sand",   "shell",  "fish",  "crab",   "gull",
    "bread", "milk", "apple", "pear",  "cake",  "soup",   "tea",    "water", "fire",   "smoke",
    "girl",  "boy",  "king",  "queen", "child", "friend", "mother", "cat",   "dog",    "horse",
    "under", "over", "near",  "with",  "from",  "into",   "before", "after", "always", "never"};

Status ReadMessages(const Json& list, DatasetEntry& entry) {
  if (!list.is_array() || list.as_array().empty())
    return base::InvalidArgument("\"messages\" is no list of messages");
  for (const Json& json : list.as_array()) {
    const Json *role = json.Find("role"), *content = json.Find("content");
    if (role == nullptr || !role->is_string() || content == nullptr || !content->is_string())
      return base::InvalidArgument("a message has no \"role\" and \"content\" of type string");
    entry.messages.push_back({.role = role->as_string(), .content = content->as_string()});
  }
  return OkStatus();
}

Result<DatasetEntry> ReadEntry(const Json& json) {
  DatasetEntry entry;
  if (const Json* tokens = json.Find("max_tokens"); tokens != nullptr && tokens->is_int())
    entry.max_tokens = static_cast<int>(std::clamp<std::int64_t>(tokens->as_int(), 0, 10000000));
  if (const Json* messages = json.Find("messages")) {
    RETURN_IF_ERROR(ReadMessages(*messages, entry));
    return entry;
  }
  const Json* text = json.is_string() ? &json : nullptr;
  for (const char* key : {"prompt", "question", "text"}) {
    if (text == nullptr) text = json.Find(key);
  }
  if (text == nullptr || !text->is_string())
    return base::InvalidArgument(
        "it is no text and has no \"prompt\", \"question\", \"text\" or "
        "\"messages\"");
  entry.messages.push_back({.role = "user", .content = text->as_string()});
  return entry;
}

}  // namespace

std::optional<TokenRange> ParseTokenRange(std::string_view text, int low_min) {
  constexpr int kTokensMax = 10000000;
  const std::size_t dash = text.find('-');
  const auto low = base::ParseNumber<int>(text.substr(0, dash));
  const auto high =
      dash == std::string_view::npos ? low : base::ParseNumber<int>(text.substr(dash + 1));
  if (!low.has_value() || !high.has_value() || *low < low_min || *high < *low || *high > kTokensMax)
    return std::nullopt;
  return TokenRange{.low = *low, .high = *high};
}

std::string RandomWords(Random& random, int count) {
  constexpr int kSentenceWords = 9;
  std::string text;
  for (int i = 0; i < count; ++i) {
    std::string word = kWords[random.Below(std::size(kWords))];
    if (i % kSentenceWords == 0) word[0] = static_cast<char>(word[0] - 'a' + 'A');
    if (i > 0) text += i % kSentenceWords == 0 ? ". " : " ";
    text += word;
  }
  return text + ".";
}

std::string RandomPrompt(Random& random, int tokens, const TokenScale& scale) {
  const double words = (tokens - scale.overhead_tokens) / std::max(scale.tokens_per_word, 0.05);
  constexpr double kWordsMax = 1e7;
  return RandomWords(random, static_cast<int>(std::clamp(std::round(words), 1.0, kWordsMax)));
}

Result<std::vector<DatasetEntry>> ReadDataset(const std::string& path) {
  std::vector<DatasetEntry> entries;
  RETURN_IF_ERROR(ReadJsonLines(path, [&](const Json& json) -> Status {
    ASSIGN_OR_RETURN(DatasetEntry entry, ReadEntry(json));
    entries.push_back(std::move(entry));
    return OkStatus();
  }));
  return entries;
}

}  // namespace thermocline::loadtest
