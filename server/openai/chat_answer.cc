#include "server/openai/chat_answer.h"

#include <utility>

#include "server/openai/logprobs.h"

namespace thermocline::openai {
namespace {

using PartKind = chat::MessagePart::Kind;

Json CallDelta(const chat::MessagePart& part) {
  Json::Object call{{"index", part.call}};
  if (part.kind == PartKind::kCallBegin) {
    call.emplace_back("id", part.id);
    call.emplace_back("type", "function");
    call.emplace_back("function", Json::Object{{"name", part.name}, {"arguments", ""}});
  } else {
    call.emplace_back("function", Json::Object{{"arguments", part.text}});
  }
  return Json::Object{{"tool_calls", Json::Array{Json(std::move(call))}}};
}

Json DeltaOf(const chat::MessagePart& part) {
  if (part.kind == PartKind::kText) return Json::Object{{"content", part.text}};
  if (part.kind == PartKind::kReasoning) return Json::Object{{"reasoning_content", part.text}};
  return CallDelta(part);
}

Json MessageJson(chat::WholeMessage message) {
  const bool empty = message.text.empty() && !message.calls.empty();
  Json::Object out{{"role", "assistant"},
                   {"content", empty ? Json() : Json(std::move(message.text))},
                   {"refusal", nullptr}};
  if (!message.reasoning.empty())
    out.emplace_back("reasoning_content", std::move(message.reasoning));
  if (message.calls.empty()) return out;
  Json::Array calls;
  for (chat::ToolCall& call : message.calls) {
    calls.push_back(Json::Object{
        {"id", std::move(call.id)},
        {"type", "function"},
        {"function",
         Json::Object{{"name", std::move(call.name)}, {"arguments", std::move(call.arguments)}}}});
  }
  out.emplace_back("tool_calls", std::move(calls));
  return out;
}

}  // namespace

ChatAnswer::ChatAnswer(const AnswerHead& head, const text::Tokenizer& tokenizer,
                       const Params& params)
    : ChoicesAnswer(head), tokenizer_(tokenizer), params_(params), choices_(params.choices) {}

std::string ChatAnswer::OnStart(int choice) {
  return Chunk(choice, Json::Object{{"role", "assistant"}, {"content", ""}});
}

std::string ChatAnswer::OnDelta(const server::ChoiceDelta& delta) {
  Choice& choice = choices_[delta.choice];
  choice.message.Add(delta.parts);
  const bool scored = params_.logprobs >= 0 && !delta.scores.empty();
  Json logprobs;
  if (scored) {
    choice.scores.insert(choice.scores.end(), delta.scores.begin(), delta.scores.end());
    logprobs = ChatLogprobs(tokenizer_, params_.logprobs, delta.scores);
  }
  std::string out;
  for (const chat::MessagePart& part : delta.parts)
    out += Chunk(delta.choice, DeltaOf(part), std::exchange(logprobs, Json()));
  if (scored && delta.parts.empty())
    out += Chunk(delta.choice, Json::Object{{"content", ""}}, std::move(logprobs));
  return out;
}

const char* ChatAnswer::ReasonName(int choice, FinishReason reason) const {
  const bool calls = !choices_[choice].message.calls.empty();
  if (reason == FinishReason::kStop && calls && !params_.named_tool) return "tool_calls";
  return FinishReasonName(reason);
}

std::vector<Json::Object> ChatAnswer::WholeChoices() {
  std::vector<Json::Object> out;
  for (const Choice& choice : choices_) {
    Json logprobs;
    if (params_.logprobs >= 0) logprobs = ChatLogprobs(tokenizer_, params_.logprobs, choice.scores);
    out.push_back({{"message", MessageJson(choice.message)}, {"logprobs", std::move(logprobs)}});
  }
  return out;
}

}  // namespace thermocline::openai
