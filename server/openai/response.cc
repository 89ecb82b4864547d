#include "server/openai/response.h"

#include <algorithm>
#include <ctime>
#include <random>

#include "engine/base/index.h"
#include "server/openai/error.h"

namespace thermocline::openai {
namespace {

constexpr const char* kFingerprint = "fp_thermocline_" THERMOCLINE_VERSION;

std::string RandomLetters() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::string id;
  for (int i = 0; i < 24; ++i) id.push_back(kAlphabet[generator() % kAlphabet.size()]);
  return id;
}

Json::Object Shared(const AnswerHead& head, const char* object, Json::Array choices) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", kFingerprint},
          {"choices", std::move(choices)}};
}

double PerSecond(int tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }

}  // namespace

std::string NewId(const std::string& prefix) { return prefix + RandomLetters(); }

AnswerHead MakeAnswerHead(bool chat, const std::string& model, bool include_usage,
                          int default_max_tokens) {
  return {.chat = chat,
          .id = NewId(chat ? "chatcmpl-" : "cmpl-"),
          .created = std::time(nullptr),
          .model = model,
          .include_usage = include_usage,
          .default_max_tokens = default_max_tokens};
}

Json UsageJson(const Usage& usage) {
  return Json::Object{
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"prompt_tokens_details", Json::Object{{"cached_tokens", usage.cached_tokens}}},
      {"completion_tokens_details", Json::Object{{"reasoning_tokens", usage.reasoning_tokens}}}};
}

Json TimingsJson(const Usage& usage) {
  const int computed = usage.prompt_tokens - usage.cached_tokens;
  const int decoded = std::max(0, usage.completion_tokens - 1);
  Json::Object out{{"cache_n", usage.cached_tokens},
                   {"prompt_n", computed},
                   {"prompt_ms", usage.prefill_s * 1000},
                   {"prompt_per_second", PerSecond(computed, usage.prefill_s)},
                   {"predicted_n", usage.completion_tokens},
                   {"predicted_ms", usage.decode_s * 1000},
                   {"predicted_per_second", PerSecond(decoded, usage.decode_s)},
                   {"draft_n", usage.spec.draft_tokens},
                   {"draft_n_accepted", usage.spec.accepted_tokens},
                   {"drafts", usage.spec.drafts},
                   {"branch_hits", usage.spec.branch_hits},
                   {"branch_misses", usage.spec.branch_misses},
                   {"draft_wait_ms", usage.spec.wait_s * 1000}};
  if (usage.energy_j > 0) {
    out.emplace_back("energy_j", usage.energy_j);
    if (usage.completion_tokens > 0)
      out.emplace_back("joules_per_token", usage.energy_j / usage.completion_tokens);
  }
  return out;
}

Json ExtensionJson(const Usage& usage, int default_max_tokens) {
  Json::Object out{{"queue_ms", usage.queue_s * 1000},
                   {"preemptions", usage.preemptions},
                   {"speculation", Json::Object{{"drafts", usage.spec.drafts},
                                                {"draft_tokens", usage.spec.draft_tokens},
                                                {"accepted_tokens", usage.spec.accepted_tokens},
                                                {"branch_hits", usage.spec.branch_hits},
                                                {"branch_misses", usage.spec.branch_misses},
                                                {"wait_ms", usage.spec.wait_s * 1000}}}};
  if (default_max_tokens > 0)
    out.emplace_back("ended_by", StrCat("sampling.max_tokens: ", default_max_tokens));
  return out;
}

std::string DataEvent(const Json& json) { return "data: " + json.Dump() + "\n\n"; }

// `usage`: of the chunk that ends the stream, else nullptr.
std::string ChoicesAnswer::Envelope(Json::Array choices, const Usage* usage, bool is_usage) const {
  Json::Object chunk =
      Shared(head_, head_.chat ? "chat.completion.chunk" : "text_completion", std::move(choices));
  if (head_.include_usage) chunk.emplace_back("usage", is_usage ? UsageJson(*usage) : Json());
  if (usage != nullptr) {
    chunk.emplace_back("timings", TimingsJson(*usage));
    chunk.emplace_back("thermocline", ExtensionJson(*usage, bound_));
  }
  return DataEvent(std::move(chunk));
}

std::string ChoicesAnswer::Chunk(int choice, Json said, Json logprobs, Json reason,
                                 const Usage* usage) const {
  Json::Object body{{"index", choice},
                    {head_.chat ? "delta" : "text", std::move(said)},
                    {"logprobs", std::move(logprobs)},
                    {"finish_reason", std::move(reason)}};
  return Envelope({Json(std::move(body))}, usage, false);
}

std::string ChoicesAnswer::Progress(const server::PromptProgress& progress) {
  Json::Object chunk = Shared(head_, head_.chat ? "chat.completion.chunk" : "text_completion", {});
  chunk.emplace_back("prompt_progress", Json::Object{{"index", progress.choice},
                                                     {"total", progress.total},
                                                     {"cache", progress.cached},
                                                     {"processed", progress.read},
                                                     {"time_ms", progress.ms}});
  return DataEvent(std::move(chunk));
}

std::string ChoicesAnswer::End(const server::ChoiceEnd& end) {
  reasons_.resize(std::max(reasons_.size(), static_cast<std::size_t>(end.choice) + 1));
  reasons_[end.choice] = end.reason;
  if (end.reason == FinishReason::kLength && head_.default_max_tokens > 0 &&
      end.usage.completion_tokens >= head_.default_max_tokens)
    bound_ = head_.default_max_tokens;
  const bool figures = end.last && !head_.include_usage;
  std::string out = Chunk(end.choice, Nothing(), {}, ReasonName(end.choice, end.reason),
                          figures ? &end.total : nullptr);
  if (!end.last) return out;
  if (head_.include_usage) out += Envelope({}, &end.total, true);
  return out + kDoneEvent;
}

const char* ChoicesAnswer::ReasonName(int, FinishReason reason) const {
  return FinishReasonName(reason);
}

Json ChoicesAnswer::Whole(const Usage& total) {
  Json::Array list;
  for (Json::Object& said : WholeChoices()) {
    const int index = base::IntSize(list);
    Json::Object choice{{"index", index}};
    for (auto& member : said) choice.push_back(std::move(member));
    choice.emplace_back("finish_reason", ReasonName(index, reasons_[index]));
    list.emplace_back(std::move(choice));
  }
  Json::Object answer =
      Shared(head_, head_.chat ? "chat.completion" : "text_completion", std::move(list));
  answer.emplace_back("usage", UsageJson(total));
  answer.emplace_back("timings", TimingsJson(total));
  answer.emplace_back("thermocline", ExtensionJson(total, bound_));
  return answer;
}

std::string ChoicesAnswer::Fail(const Status& status, CancelCause cause) {
  return DataEvent(FromStatus(status, cause).ToJson());
}

}  // namespace thermocline::openai
