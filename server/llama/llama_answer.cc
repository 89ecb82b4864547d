#include "server/llama/llama_answer.h"

#include <algorithm>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "engine/base/json_list.h"
#include "engine/base/strings.h"
#include "server/protocol/answer_parts.h"
#include "server/protocol/error.h"

namespace thermocline::llama {
namespace {

Json ScoreJson(const text::Tokenizer& tokenizer, const TokenChannel::Score& score) {
  const std::string& bytes = tokenizer.TokenBytes(score.token, true);
  Json::Array numbers;
  for (const char byte : bytes) numbers.emplace_back(base::ByteOf(byte));
  return Json::Object{{"id", score.token},
                      {"token", base::ReplaceInvalidUtf8(bytes)},
                      {"bytes", std::move(numbers)},
                      {"logprob", double{score.logprob}}};
}

// `scores`: per token its own, then those of `top` alternatives.
Json ProbabilitiesOf(const text::Tokenizer& tokenizer, int top,
                     std::span<const TokenChannel::Score> scores) {
  base::JsonList out;
  const std::size_t stride = top + 1;
  for (std::size_t at = 0; at + stride <= scores.size(); at += stride) {
    Json::Array others;
    for (std::size_t i = 1; i < stride; ++i) others.push_back(ScoreJson(tokenizer, scores[at + i]));
    Json token = ScoreJson(tokenizer, scores[at]);
    token.Set("top_logprobs", std::move(others));
    out.Add(token);
  }
  return out.Take();
}

Json IdsOf(std::span<const int> tokens) {
  base::JsonList out;
  for (const int token : tokens) out.Add(token);
  return out.Take();
}

}  // namespace

std::string LlamaAnswer::OnDelta(const server::ChoiceDelta& delta) {
  std::string text;
  for (const chat::MessagePart& part : delta.parts) text += part.text;
  predicted_ += base::IntSize(delta.tokens);
  text_ += text;
  if (!params_.stream) {
    tokens_.insert(tokens_.end(), delta.tokens.begin(), delta.tokens.end());
    scores_.insert(scores_.end(), delta.scores.begin(), delta.scores.end());
    return "";
  }
  if (text.empty() && delta.tokens.empty()) return "";
  Json::Object event{{"index", 0},
                     {"content", text},
                     {"tokens", IdsOf(delta.tokens)},
                     {"stop", false},
                     {"id_slot", -1},
                     {"tokens_predicted", predicted_},
                     {"tokens_evaluated", params_.prompt_tokens}};
  if (params_.probabilities > 0 && !delta.scores.empty())
    event.emplace_back("completion_probabilities",
                       ProbabilitiesOf(tokenizer_, params_.probabilities, delta.scores));
  return protocol::DataEvent(std::move(event));
}

std::string LlamaAnswer::Progress(const server::PromptProgress& progress) {
  return protocol::DataEvent(
      Json::Object{{"index", 0},
                   {"content", ""},
                   {"tokens", Json::Array{}},
                   {"stop", false},
                   {"id_slot", -1},
                   {"tokens_predicted", 0},
                   {"tokens_evaluated", params_.prompt_tokens},
                   {"prompt_progress", Json::Object{{"total", progress.total},
                                                    {"cache", progress.cached},
                                                    {"processed", progress.read},
                                                    {"time_ms", progress.ms}}}});
}

Json LlamaAnswer::Last(std::string text, Json tokens, const Usage& usage) const {
  const bool word = reason_ == FinishReason::kStop && stop_ >= 0;
  const bool limit = reason_ == FinishReason::kLength;
  return Json::Object{{"index", 0},
                      {"content", std::move(text)},
                      {"tokens", std::move(tokens)},
                      {"id_slot", -1},
                      {"stop", true},
                      {"model", params_.model},
                      {"tokens_predicted", usage.completion_tokens},
                      {"tokens_evaluated", usage.prompt_tokens},
                      {"generation_settings", params_.settings},
                      {"prompt", params_.prompt},
                      {"has_new_line", text_.find('\n') != std::string::npos},
                      {"truncated", false},
                      {"stop_type", limit  ? "limit"
                                    : word ? "word"
                                           : "eos"},
                      {"stopping_word", word ? params_.stops[stop_] : ""},
                      {"tokens_cached", usage.cached_tokens},
                      {"timings", protocol::TimingsJson(usage)}};
}

std::string LlamaAnswer::OnEnd(const server::ChoiceEnd& end) {
  reason_ = end.reason;
  stop_ = end.usage.stop;
  return protocol::DataEvent(Picked(Last("", Json::Array{}, end.total)));
}

Json LlamaAnswer::FullResponse(const Usage& total) {
  Json answer = Last(text_, params_.return_tokens ? IdsOf(tokens_) : Json::Array{}, total);
  if (params_.probabilities > 0)
    answer.Set("completion_probabilities",
               ProbabilitiesOf(tokenizer_, params_.probabilities, scores_));
  return Picked(std::move(answer));
}

// "timings/prompt_n" names a member of a member. Members that the answer lacks are omitted.
Json LlamaAnswer::Picked(Json answer) const {
  if (params_.response_fields.empty()) return answer;
  Json out = Json::Object{};
  for (const std::string& path : params_.response_fields) {
    const Json* at = &answer;
    for (std::size_t begin = 0; at != nullptr && begin <= path.size();) {
      const std::size_t end = std::min(path.find('/', begin), path.size());
      at = at->Find(path.substr(begin, end - begin));
      begin = end + 1;
    }
    if (at != nullptr) out.Set(path, *at);
  }
  return out;
}

std::string LlamaAnswer::Fail(const Status& status, CancelCause cause) {
  return protocol::DataEvent(protocol::FromStatus(status, cause).ToJson());
}

}  // namespace thermocline::llama
