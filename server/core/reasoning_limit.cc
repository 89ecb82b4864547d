#include "server/core/reasoning_limit.h"

#include "server/chat/message_json.h"

namespace thermocline::server {
namespace {

// The marks of gpt-oss, whose reasoning is a message in a channel of its own.
constexpr const char *kAnalysis = "<|channel|>analysis<|message|>", *kMessageEnd = "<|end|>",
                     *kFinal = "<|end|><|start|>assistant<|channel|>final<|message|>";

std::optional<int> BudgetOfEffort(const std::string& effort, int context_length) {
  if (effort == "none") return 0;
  if (effort == "minimal") return context_length / 64;
  if (effort == "low") return context_length / 32;
  if (effort == "medium") return context_length / 16;
  return std::nullopt;
}

}  // namespace

std::optional<int> ReasoningBudget(const chat::Conversation& conversation,
                                   const chat::OutputFormat& format, int context_length,
                                   const ServerConfig& config) {
  const auto limit = [](int tokens) { return tokens < 0 ? std::nullopt : std::optional(tokens); };
  if (conversation.reasoning_budget.has_value()) return limit(*conversation.reasoning_budget);
  const Json* thinking = conversation.json.Find("enable_thinking");
  const bool off = thinking != nullptr && thinking->is_bool() && !thinking->as_bool();
  if (off && !format.has_thinking_switch) return 0;
  const std::string effort = chat::TextOf(conversation.json.Find("reasoning_effort"));
  if (!format.has_effort && !effort.empty()) return BudgetOfEffort(effort, context_length);
  return limit(config.reasoning_budget);
}

std::shared_ptr<const sampling::ThoughtLimit> MakeThoughtLimit(const chat::OutputFormat& format,
                                                               const text::Tokenizer& tokenizer,
                                                               int tokens_max,
                                                               const ReasoningPlace& place) {
  using sampling::StreamSearch;
  const auto encode = [&tokenizer](const std::string& marks) {
    return tokenizer.Encode(marks, {.add_bos = false, .control_tokens = true});
  };
  // The message is a client's text: names of control tokens in it stay text.
  const auto behind_message = [&](const std::string& marks) {
    std::vector<int> tokens =
        tokenizer.Encode(place.message, {.add_bos = false, .control_tokens = false});
    const std::vector<int> end = encode(marks);
    tokens.insert(tokens.end(), end.begin(), end.end());
    return tokens;
  };
  if (format.harmony) {
    // A call may follow the first message of reasoning, only the answer the next one.
    return std::make_shared<const sampling::ThoughtLimit>(
        sampling::ThoughtLimit{.tokenizer = tokenizer,
                               .tokens_max = tokens_max,
                               .open = StreamSearch(kAnalysis),
                               .close = StreamSearch(kMessageEnd),
                               .opens_anywhere = true,
                               .ending = behind_message(place.may_call ? kMessageEnd : kFinal),
                               .ending_again = encode(kFinal)});
  }
  if (!format.reasoning.known()) return nullptr;
  return std::make_shared<const sampling::ThoughtLimit>(
      sampling::ThoughtLimit{.tokenizer = tokenizer,
                             .tokens_max = tokens_max,
                             .open = StreamSearch(format.reasoning.open),
                             .close = StreamSearch(format.reasoning.close),
                             .begins_inside = place.in_reasoning,
                             .ending = behind_message(format.reasoning.close),
                             .ending_again = encode(format.reasoning.close)});
}

}  // namespace thermocline::server
