#include "server/openai/chat_response.h"

#include <algorithm>
#include <ctime>
#include <random>

namespace thermocline::openai {
namespace {

constexpr const char* kFingerprint = "fp_thermocline_0.1.0";

std::string RandomId() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::string id;
  for (int i = 0; i < 24; ++i) id.push_back(kAlphabet[generator() % kAlphabet.size()]);
  return id;
}

// Members that are null are left out, but for the usage of a stream that has one.
struct Ends {
  Json usage, timings;
};

std::string Chunk(const AnswerHead& head, Json::Array choices, Ends ends) {
  Json chunk{Json::Object{{"id", head.id},
                          {"object", "chat.completion.chunk"},
                          {"created", head.created},
                          {"model", head.model},
                          {"system_fingerprint", kFingerprint},
                          {"choices", std::move(choices)}}};
  if (head.include_usage) chunk.Set("usage", std::move(ends.usage));
  if (!ends.timings.is_null()) chunk.Set("timings", std::move(ends.timings));
  return DataEvent(chunk);
}

std::string Delta(const AnswerHead& head, Json::Object delta, Json finish_reason,
                  Json timings = {}) {
  return Chunk(head,
               {Json(Json::Object{{"index", 0},
                                  {"delta", std::move(delta)},
                                  {"logprobs", nullptr},
                                  {"finish_reason", std::move(finish_reason)}})},
               {.usage = {}, .timings = std::move(timings)});
}

double PerSecond(int tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0; }

}  // namespace

AnswerHead MakeAnswerHead(const std::string& model, bool include_usage) {
  return {.id = "chatcmpl-" + RandomId(),
          .created = std::time(nullptr),
          .model = model,
          .include_usage = include_usage};
}

const char* FinishReasonName(FinishReason reason) {
  return reason == FinishReason::kLength ? "length" : "stop";
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
  return Json::Object{{"cache_n", usage.cached_tokens},
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
}

Json WholeAnswer(const AnswerHead& head, const std::string& text, FinishReason reason,
                 const Usage& usage) {
  return Json::Object{
      {"id", head.id},
      {"object", "chat.completion"},
      {"created", head.created},
      {"model", head.model},
      {"system_fingerprint", kFingerprint},
      {"choices", Json::Array{Json(Json::Object{{"index", 0},
                                                {"message", Json::Object{{"role", "assistant"},
                                                                         {"content", text},
                                                                         {"refusal", nullptr}}},
                                                {"logprobs", nullptr},
                                                {"finish_reason", FinishReasonName(reason)}})}},
      {"usage", UsageJson(usage)},
      {"timings", TimingsJson(usage)}};
}

std::string RoleEvent(const AnswerHead& head) {
  return Delta(head, {{"role", "assistant"}, {"content", ""}}, nullptr);
}
std::string ContentEvent(const AnswerHead& head, const std::string& text) {
  return Delta(head, {{"content", text}}, nullptr);
}
std::string FinishEvent(const AnswerHead& head, FinishReason reason, const Usage& usage) {
  return Delta(head, {}, FinishReasonName(reason),
               head.include_usage ? Json() : TimingsJson(usage));
}
std::string UsageEvent(const AnswerHead& head, const Usage& usage) {
  return Chunk(head, {}, {.usage = UsageJson(usage), .timings = TimingsJson(usage)});
}
std::string DataEvent(const Json& json) { return "data: " + json.Dump() + "\n\n"; }

}  // namespace thermocline::openai
