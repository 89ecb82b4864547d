#include "server/openai/chat_response.h"

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

std::string Chunk(const AnswerHead& head, Json::Array choices, Json usage) {
  Json chunk{Json::Object{{"id", head.id},
                          {"object", "chat.completion.chunk"},
                          {"created", head.created},
                          {"model", head.model},
                          {"system_fingerprint", kFingerprint},
                          {"choices", std::move(choices)}}};
  if (head.include_usage) chunk.Set("usage", std::move(usage));
  return DataEvent(chunk);
}

std::string Delta(const AnswerHead& head, Json::Object delta, Json finish_reason) {
  return Chunk(head,
               {Json(Json::Object{{"index", 0},
                                  {"delta", std::move(delta)},
                                  {"logprobs", nullptr},
                                  {"finish_reason", std::move(finish_reason)}})},
               nullptr);
}

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
      {"usage", UsageJson(usage)}};
}

std::string RoleEvent(const AnswerHead& head) {
  return Delta(head, {{"role", "assistant"}, {"content", ""}}, nullptr);
}
std::string ContentEvent(const AnswerHead& head, const std::string& text) {
  return Delta(head, {{"content", text}}, nullptr);
}
std::string FinishEvent(const AnswerHead& head, FinishReason reason) {
  return Delta(head, {}, FinishReasonName(reason));
}
std::string UsageEvent(const AnswerHead& head, const Usage& usage) {
  return Chunk(head, {}, UsageJson(usage));
}
std::string DataEvent(const Json& json) { return "data: " + json.Dump() + "\n\n"; }

}  // namespace thermocline::openai
