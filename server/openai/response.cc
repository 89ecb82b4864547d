#include "server/openai/response.h"

#include <algorithm>
#include <ctime>
#include <random>

namespace thermocline::openai {
namespace {

constexpr const char* kFingerprint = "fp_thermocline_" THERMOCLINE_VERSION;

std::string RandomId() {
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

// What OpenAI's API has no place for.
Json ExtensionJson(const Usage& usage) {
  return Json::Object{{"queue_ms", usage.queue_s * 1000},
                      {"preemptions", usage.preemptions},
                      {"speculation", Json::Object{{"drafts", usage.spec.drafts},
                                                   {"draft_tokens", usage.spec.draft_tokens},
                                                   {"accepted_tokens", usage.spec.accepted_tokens},
                                                   {"branch_hits", usage.spec.branch_hits},
                                                   {"branch_misses", usage.spec.branch_misses},
                                                   {"wait_ms", usage.spec.wait_s * 1000}}}};
}

// `usage`: of the chunk that ends the stream, else nullptr.
std::string Chunk(const AnswerHead& head, Json::Array choices, const Usage* usage,
                  bool is_usage = false) {
  Json::Object chunk =
      Shared(head, head.chat ? "chat.completion.chunk" : "text_completion", std::move(choices));
  if (head.include_usage) chunk.emplace_back("usage", is_usage ? UsageJson(*usage) : Json());
  if (usage != nullptr) {
    chunk.emplace_back("timings", TimingsJson(*usage));
    chunk.emplace_back("thermocline", ExtensionJson(*usage));
  }
  return DataEvent(std::move(chunk));
}

// `delta` of a chat's choice; the others have `text` alone.
std::string ChoiceEvent(const AnswerHead& head, int index, Json::Object delta,
                        const std::string& text, Json logprobs, Json finish_reason,
                        const Usage* usage) {
  Json::Object choice{{"index", index}};
  if (head.chat) {
    choice.emplace_back("delta", std::move(delta));
  } else {
    choice.emplace_back("text", text);
  }
  choice.emplace_back("logprobs", std::move(logprobs));
  choice.emplace_back("finish_reason", std::move(finish_reason));
  return Chunk(head, {Json(std::move(choice))}, usage);
}

double PerSecond(int tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }

}  // namespace

AnswerHead MakeAnswerHead(bool chat, const std::string& model, bool include_usage) {
  return {.chat = chat,
          .id = (chat ? "chatcmpl-" : "cmpl-") + RandomId(),
          .created = std::time(nullptr),
          .model = model,
          .include_usage = include_usage};
}

Json UsageJson(const Usage& usage) {
  return Json::Object{
      {"prompt_tokens", usage.prompt_tokens},
      {"completion_tokens", usage.completion_tokens},
      {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
      {"prompt_tokens_details", Json::Object{{"cached_tokens", usage.cached_tokens}}},
      {"completion_tokens_details", Json::Object{{"reasoning_tokens", 0}}}};
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

Json WholeAnswer(const AnswerHead& head, std::vector<WholeChoice> choices, const Usage& usage) {
  Json::Array list;
  for (WholeChoice& whole : choices) {
    Json::Object choice{{"index", list.size()}};
    if (head.chat) {
      choice.emplace_back("message", Json::Object{{"role", "assistant"},
                                                  {"content", std::move(whole.text)},
                                                  {"refusal", nullptr}});
    } else {
      choice.emplace_back("text", std::move(whole.text));
    }
    choice.emplace_back("logprobs", std::move(whole.logprobs));
    choice.emplace_back("finish_reason", FinishReasonName(whole.reason));
    list.emplace_back(std::move(choice));
  }
  Json::Object answer =
      Shared(head, head.chat ? "chat.completion" : "text_completion", std::move(list));
  answer.emplace_back("usage", UsageJson(usage));
  answer.emplace_back("timings", TimingsJson(usage));
  answer.emplace_back("thermocline", ExtensionJson(usage));
  return answer;
}

std::string RoleEvent(const AnswerHead& head, int index) {
  return ChoiceEvent(head, index, {{"role", "assistant"}, {"content", ""}}, "", {}, {}, nullptr);
}

std::string ContentEvent(const AnswerHead& head, int index, const std::string& text,
                         Json logprobs) {
  Json::Object delta;
  if (head.chat) delta.emplace_back("content", text);
  return ChoiceEvent(head, index, std::move(delta), text, std::move(logprobs), {}, nullptr);
}

std::string FinishEvent(const AnswerHead& head, int index, FinishReason reason,
                        const Usage* usage) {
  return ChoiceEvent(head, index, {}, "", {}, FinishReasonName(reason), usage);
}

std::string UsageEvent(const AnswerHead& head, const Usage& usage) {
  return Chunk(head, {}, &usage, true);
}

std::string ProgressEvent(const AnswerHead& head, const Progress& progress) {
  Json::Object chunk = Shared(head, head.chat ? "chat.completion.chunk" : "text_completion", {});
  chunk.emplace_back("prompt_progress", Json::Object{{"index", progress.index},
                                                     {"total", progress.total},
                                                     {"cache", progress.cached},
                                                     {"processed", progress.read},
                                                     {"time_ms", progress.ms}});
  return DataEvent(std::move(chunk));
}

std::string DataEvent(const Json& json) { return "data: " + json.Dump() + "\n\n"; }

}  // namespace thermocline::openai
