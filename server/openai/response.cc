#include "server/openai/response.h"

#include <algorithm>
#include <ctime>

#include "engine/base/index.h"
#include "server/protocol/answer_parts.h"
#include "server/protocol/error.h"

namespace thermocline::openai {
namespace {

constexpr const char* kFingerprint = "fp_thermocline_" THERMOCLINE_VERSION;

Json::Object Shared(const AnswerHead& head, const char* object, Json::Array choices) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", kFingerprint},
          {"choices", std::move(choices)}};
}

}  // namespace

AnswerHead MakeAnswerHead(bool chat, const std::string& model, bool include_usage,
                          int default_max_tokens) {
  return {.chat = chat,
          .id = protocol::NewId(chat ? "chatcmpl-" : "cmpl-"),
          .created = std::time(nullptr),
          .model = model,
          .include_usage = include_usage,
          .default_max_tokens = default_max_tokens};
}

// `usage`: set for the chunk that ends the stream, else nullptr.
std::string ChoicesAnswer::Envelope(Json::Array choices, const Usage* usage, bool is_usage) const {
  Json::Object chunk =
      Shared(head_, head_.chat ? "chat.completion.chunk" : "text_completion", std::move(choices));
  if (head_.include_usage)
    chunk.emplace_back("usage", is_usage ? protocol::UsageJson(*usage) : Json());
  if (usage != nullptr) {
    chunk.emplace_back("timings", protocol::TimingsJson(*usage));
    chunk.emplace_back("thermocline", protocol::ExtensionJson(*usage, bound_));
  }
  return protocol::DataEvent(std::move(chunk));
}

std::string ChoicesAnswer::Chunk(int choice, Json delta, Json logprobs, Json reason,
                                 const Usage* usage) const {
  Json::Object body{{"index", choice},
                    {head_.chat ? "delta" : "text", std::move(delta)},
                    {"logprobs", std::move(logprobs)},
                    {"finish_reason", std::move(reason)}};
  return Envelope({Json(std::move(body))}, usage, false);
}

std::string ChoicesAnswer::Progress(const server::PromptProgress& progress) {
  Json::Object chunk = Shared(head_, head_.chat ? "chat.completion.chunk" : "text_completion", {});
  chunk.emplace_back("prompt_progress", protocol::ProgressJson(progress));
  return protocol::DataEvent(std::move(chunk));
}

std::string ChoicesAnswer::OnEnd(const server::ChoiceEnd& end) {
  reasons_.resize(std::max(reasons_.size(), static_cast<std::size_t>(end.choice) + 1));
  reasons_[end.choice] = end.reason;
  if (end.reason == FinishReason::kLength && head_.default_max_tokens > 0 &&
      end.usage.completion_tokens >= head_.default_max_tokens)
    bound_ = head_.default_max_tokens;
  const bool figures = end.last && !head_.include_usage;
  std::string out = Chunk(end.choice, EmptyDelta(), {}, ReasonName(end.choice, end.reason),
                          figures ? &end.total : nullptr);
  if (!end.last) return out;
  if (head_.include_usage) out += Envelope({}, &end.total, true);
  return out + kDoneEvent;
}

const char* ChoicesAnswer::ReasonName(int, FinishReason reason) const {
  return FinishReasonName(reason);
}

Json ChoicesAnswer::FullResponse(const Usage& total) {
  Json::Array list;
  for (Json::Object& delta : WholeChoices()) {
    const int index = base::IntSize(list);
    Json::Object choice{{"index", index}};
    for (auto& member : delta) choice.push_back(std::move(member));
    choice.emplace_back("finish_reason", ReasonName(index, reasons_[index]));
    list.emplace_back(std::move(choice));
  }
  Json::Object answer =
      Shared(head_, head_.chat ? "chat.completion" : "text_completion", std::move(list));
  answer.emplace_back("usage", protocol::UsageJson(total));
  answer.emplace_back("timings", protocol::TimingsJson(total));
  answer.emplace_back("thermocline", protocol::ExtensionJson(total, bound_));
  return answer;
}

std::string ChoicesAnswer::Fail(const Status& status, CancelCause cause) {
  return protocol::DataEvent(protocol::FromStatus(status, cause).ToJson());
}

}  // namespace thermocline::openai
