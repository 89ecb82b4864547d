#include "server/anthropic/messages_answer.h"

#include <utility>

#include "engine/base/strings.h"
#include "server/anthropic/error.h"
#include "server/protocol/answer_parts.h"

namespace thermocline::anthropic {
namespace {

using Kind = chat::MessagePart::Kind;

std::string EventOf(const char* type, Json::Object body) {
  Json::Object event{{"type", type}};
  for (auto& member : body) event.push_back(std::move(member));
  return StrCat("event: ", type, "\n", protocol::DataEvent(std::move(event)));
}

// Tokens found in the prefix cache do not count as input tokens.
Json UsageOf(const Usage& usage) {
  return Json::Object{{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
                      {"cache_creation_input_tokens", 0},
                      {"cache_read_input_tokens", usage.cached_tokens},
                      {"output_tokens", usage.completion_tokens}};
}

}  // namespace

MessagesAnswer::MessagesAnswer(Params params)
    : params_(std::move(params)), id_(protocol::NewId("msg_")) {}

Json MessagesAnswer::BlockJson(const Block& block) const {
  if (block.kind == Kind::kText) return Json::Object{{"type", "text"}, {"text", block.text}};
  if (block.kind == Kind::kReasoning)
    return Json::Object{{"type", "thinking"}, {"thinking", block.text}, {"signature", ""}};
  // Input that max_tokens cut off is not JSON.
  const auto input = base::ParseJson(block.text.empty() ? "{}" : block.text);
  return Json::Object{{"type", "tool_use"},
                      {"id", block.id},
                      {"name", block.name},
                      {"input", input.ok() ? *input : Json(Json::Object{})}};
}

Json MessagesAnswer::MessageJson(const Usage& usage) const {
  Json::Array content;
  for (const Block& block : blocks_) content.push_back(BlockJson(block));
  return Json::Object{{"id", id_},
                      {"type", "message"},
                      {"role", "assistant"},
                      {"model", params_.model},
                      {"content", std::move(content)},
                      {"stop_reason", stop_reason_.empty() ? Json() : Json(stop_reason_)},
                      {"stop_sequence", stop_ < 0 ? Json() : Json(params_.stops[stop_])},
                      {"usage", UsageOf(usage)}};
}

std::string MessagesAnswer::Open() { return OnStart(0) + EventOf("ping", {}); }

std::string MessagesAnswer::OnStart(int) {
  if (std::exchange(begun_, true)) return "";
  return EventOf("message_start",
                 {{"message", MessageJson({.prompt_tokens = params_.prompt_tokens})}});
}

std::string MessagesAnswer::Open(const chat::MessagePart& part) {
  std::string out = Close();
  open_ = true;
  blocks_.push_back({.kind = part.kind, .text = {}, .id = part.id, .name = part.name});
  return out + EventOf("content_block_start", {{"index", blocks_.size() - 1},
                                               {"content_block", BlockJson(blocks_.back())}});
}

std::string MessagesAnswer::Close() {
  if (!std::exchange(open_, false)) return "";
  return EventOf("content_block_stop", {{"index", blocks_.size() - 1}});
}

std::string MessagesAnswer::OnDelta(const server::ChoiceDelta& delta) {
  std::string out;
  for (const chat::MessagePart& part : delta.parts) {
    const bool is_input = part.kind == Kind::kCallArguments;
    if (!is_input && (!open_ || blocks_.back().kind != part.kind || part.kind == Kind::kCallBegin))
      out += Open(part);
    if (part.kind == Kind::kCallBegin) continue;
    blocks_.back().text += part.text;
    Json block_delta;
    if (is_input) {
      block_delta = Json::Object{{"type", "input_json_delta"}, {"partial_json", part.text}};
    } else if (part.kind == Kind::kReasoning) {
      block_delta = Json::Object{{"type", "thinking_delta"}, {"thinking", part.text}};
    } else {
      block_delta = Json::Object{{"type", "text_delta"}, {"text", part.text}};
    }
    out += EventOf("content_block_delta",
                   {{"index", blocks_.size() - 1}, {"delta", std::move(block_delta)}});
  }
  return out;
}

std::string MessagesAnswer::OnEnd(const server::ChoiceEnd& end) {
  stop_ = end.usage.stop;
  if (end.reason == FinishReason::kLength) {
    const bool asked = params_.max_tokens > 0 && end.usage.completion_tokens >= params_.max_tokens;
    stop_reason_ = asked ? "max_tokens" : "model_context_window_exceeded";
  } else if (stop_ >= 0) {
    stop_reason_ = "stop_sequence";
  } else {
    const bool calls = !blocks_.empty() && blocks_.back().kind == Kind::kCallBegin;
    stop_reason_ = calls ? "tool_use" : "end_turn";
  }
  std::string out = Close();
  out += EventOf(
      "message_delta",
      {{"delta", Json::Object{{"stop_reason", stop_reason_},
                              {"stop_sequence", stop_ < 0 ? Json() : Json(params_.stops[stop_])}}},
       {"usage", UsageOf(end.total)}});
  return out + EventOf("message_stop", {});
}

Json MessagesAnswer::FullResponse(const Usage& total) { return MessageJson(total); }

std::string MessagesAnswer::Fail(const Status& status, CancelCause cause) {
  const Json error = ErrorJson(protocol::FromStatus(status, cause), "");
  return EventOf("error", {{"error", *error.Find("error")}});
}

std::string MessagesAnswer::Progress(const server::PromptProgress& progress) {
  progress_ = progress;
  return "";
}

// No event may precede message_start.
std::string MessagesAnswer::KeepAlive() {
  if (!begun_) return AnswerFormat::KeepAlive();
  Json::Object body;
  if (progress_.has_value())
    body.emplace_back("prompt_progress", protocol::ProgressJson(*progress_));
  return EventOf("ping", std::move(body));
}

}  // namespace thermocline::anthropic
