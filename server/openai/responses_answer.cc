#include "server/openai/responses_answer.h"

#include <ctime>
#include <utility>

#include "engine/base/index.h"
#include "server/core/refusal_table.h"
#include "server/openai/logprobs.h"
#include "server/protocol/answer_parts.h"
#include "server/protocol/error.h"

namespace thermocline::openai {

namespace {

// The code of response.failed, by which clients decide about a retry. Codex retries after
// server_error and rate_limit_exceeded only.
const char* FailureCode(const Status& status) {
  const server::RefusalRow& row = server::RowOf(status);
  if (status.reason() == Reason::kContextLength) return "context_length_exceeded";
  if (row.retry_after) return row.http_status == 429 ? "rate_limit_exceeded" : "server_error";
  return row.http_status < 500 ? "invalid_prompt" : "server_is_overloaded";
}

// The answer repeats tools and metadata, which may have megabytes. As text they take a tenth of the
// memory of JSON values.
ResponsesAnswer::Params WithWrittenEcho(ResponsesAnswer::Params params) {
  for (auto& [key, value] : params.echo) value = Json::OfWritten(value.Dump());
  return params;
}

}  // namespace

ResponsesAnswer::ResponsesAnswer(const text::Tokenizer& tokenizer, Params params)
    : tokenizer_(tokenizer),
      params_(WithWrittenEcho(std::move(params))),
      id_(protocol::NewId("resp_")),
      created_(std::time(nullptr)) {
  constexpr std::size_t kCopies = 4;  // here, in the first two events, and in the output buffer
  for (const auto& [key, value] : params_.echo) echo_bytes_ += kCopies * value.as_written().size();
}

std::string ResponsesAnswer::Event(const char* type, Json::Object body) {
  Json::Object event{{"type", type}, {"sequence_number", sequence_++}};
  for (auto& member : body) event.push_back(std::move(member));
  return StrCat("event: ", type, "\n", protocol::DataEvent(std::move(event)));
}

std::string ResponsesAnswer::ItemEvent(const char* type, Json::Object body) {
  Json::Object event{{"item_id", items_.back().id}, {"output_index", items_.size() - 1}};
  for (auto& member : body) event.push_back(std::move(member));
  return Event(type, std::move(event));
}

std::string ResponsesAnswer::OnStart(int) { return opened_ ? "" : Open(); }

std::string ResponsesAnswer::Progress(const server::PromptProgress& progress) {
  progress_ = progress;
  return "";
}

std::string ResponsesAnswer::KeepAlive() {
  Json::Object body{{"response", ResponseJson("in_progress", nullptr)}};
  if (progress_.has_value())
    body.emplace_back("prompt_progress", protocol::ProgressJson(*progress_));
  return Event("response.in_progress", std::move(body));
}

std::string ResponsesAnswer::Open() {
  opened_ = true;
  const Json response = ResponseJson("in_progress", nullptr);
  std::string out = Event("response.created", {{"response", response}});
  return out += Event("response.in_progress", {{"response", response}});
}

Json ResponsesAnswer::PartJson(const Item& item, bool empty) const {
  return Json::Object{{"type", "output_text"},
                      {"text", empty ? "" : item.text},
                      {"annotations", Json::Array{}},
                      {"logprobs", empty ? Json::Array{} : item.logprobs.Written()}};
}

Json ResponsesAnswer::ItemJson(const Item& item, bool empty) const {
  const char* status = empty ? "in_progress" : item.done ? "completed" : "incomplete";
  if (item.kind == Kind::kReasoning) {
    Json::Array content;
    if (!empty) content.push_back(Json::Object{{"type", "reasoning_text"}, {"text", item.text}});
    return Json::Object{{"id", item.id},
                        {"type", "reasoning"},
                        {"summary", Json::Array{}},
                        {"content", std::move(content)}};
  }
  if (item.kind == Kind::kCall) {
    return Json::Object{{"id", item.id},     {"type", "function_call"},
                        {"status", status},  {"call_id", item.call_id},
                        {"name", item.name}, {"arguments", empty ? "" : item.text}};
  }
  Json::Array content;
  if (!empty) content.push_back(PartJson(item));
  return Json::Object{{"id", item.id},
                      {"type", "message"},
                      {"role", "assistant"},
                      {"status", status},
                      {"content", std::move(content)}};
}

std::string ResponsesAnswer::Open(Kind kind, const chat::MessagePart& part) {
  static constexpr const char* kPrefixes[] = {"rs_", "msg_", "fc_"};
  std::string out = Close();
  items_.push_back({.kind = kind,
                    .id = protocol::NewId(kPrefixes[base::Index(kind)]),
                    .call_id = part.id,
                    .name = part.name,
                    .text = {}});
  const Item& item = items_.back();
  out += Event("response.output_item.added",
               {{"output_index", items_.size() - 1}, {"item", ItemJson(item, true)}});
  if (kind == Kind::kMessage)
    out += ItemEvent("response.content_part.added",
                     {{"content_index", 0}, {"part", PartJson(item, true)}});
  return out;
}

// Ends the last item, if it has not ended.
std::string ResponsesAnswer::Close() {
  if (items_.empty() || items_.back().done) return "";
  Item& item = items_.back();
  item.done = reason_ != FinishReason::kLength;
  std::string out;
  if (item.kind == Kind::kReasoning) {
    out = ItemEvent("response.reasoning_text.done", {{"content_index", 0}, {"text", item.text}});
  } else if (item.kind == Kind::kCall) {
    out = ItemEvent("response.function_call_arguments.done",
                    {{"arguments", item.text}, {"name", item.name}});
  } else {
    out = ItemEvent(
        "response.output_text.done",
        {{"content_index", 0}, {"text", item.text}, {"logprobs", item.logprobs.Written()}});
    out +=
        ItemEvent("response.content_part.done", {{"content_index", 0}, {"part", PartJson(item)}});
  }
  return out + Event("response.output_item.done",
                     {{"output_index", items_.size() - 1}, {"item", ItemJson(item)}});
}

std::string ResponsesAnswer::OnDelta(const server::ChoiceDelta& delta) {
  using PartOf = chat::MessagePart::Kind;
  std::string out;
  base::JsonList logprobs;
  if (params_.logprobs >= 0 && !delta.scores.empty())
    logprobs = TokenLogprobs(tokenizer_, params_.logprobs, delta.scores);
  for (const chat::MessagePart& part : delta.parts) {
    const Kind kind = part.kind == PartOf::kText        ? Kind::kMessage
                      : part.kind == PartOf::kReasoning ? Kind::kReasoning
                                                        : Kind::kCall;
    const bool opens = items_.empty() || items_.back().kind != kind || items_.back().done ||
                       part.kind == PartOf::kCallBegin;
    if (opens) out += Open(kind, part);
    Item& item = items_.back();
    item.text += part.text;
    if (part.kind == PartOf::kCallBegin) continue;
    Json::Object fields{{"delta", part.text}};
    if (kind == Kind::kCall) {
      out += ItemEvent("response.function_call_arguments.delta", std::move(fields));
      continue;
    }
    fields.insert(fields.begin(), {"content_index", 0});
    if (kind == Kind::kReasoning) {
      out += ItemEvent("response.reasoning_text.delta", std::move(fields));
      continue;
    }
    item.logprobs.Add(logprobs);
    fields.emplace_back("logprobs", logprobs.Take());
    out += ItemEvent("response.output_text.delta", std::move(fields));
  }
  return out;
}

std::string ResponsesAnswer::OnEnd(const server::ChoiceEnd& end) {
  reason_ = end.reason;
  if (reason_ == FinishReason::kLength && params_.default_max_tokens > 0 &&
      end.usage.completion_tokens >= params_.default_max_tokens)
    bound_ = params_.default_max_tokens;
  // An answer without content is an empty message.
  std::string out = items_.empty() ? Open(Kind::kMessage, {}) : "";
  out += Close();
  const bool cut = reason_ == FinishReason::kLength;
  const char* type = cut ? "response.incomplete" : "response.completed";
  return out +
         Event(type, {{"response", ResponseJson(cut ? "incomplete" : "completed", &end.total)}});
}

Json ResponsesAnswer::FullResponse(const Usage& total) {
  return ResponseJson(reason_ == FinishReason::kLength ? "incomplete" : "completed", &total);
}

Json ResponsesAnswer::ResponseJson(const char* status, const Usage* usage) const {
  Json::Array output;
  for (const Item& item : items_) output.push_back(ItemJson(item));
  const bool cut = std::string_view(status) == "incomplete";
  Json::Object out{
      {"id", id_},
      {"object", "response"},
      {"created_at", created_},
      {"status", status},
      {"model", params_.model},
      {"error", nullptr},
      {"incomplete_details", cut ? Json(Json::Object{{"reason", "max_output_tokens"}}) : Json()},
      {"output", std::move(output)},
      {"previous_response_id", nullptr},
      {"store", false},
      {"background", false}};
  for (const auto& member : params_.echo) out.push_back(member);
  if (usage == nullptr) {
    out.emplace_back("usage", nullptr);
    return out;
  }
  out.emplace_back(
      "usage",
      Json::Object{
          {"input_tokens", usage->prompt_tokens},
          {"input_tokens_details",
           Json::Object{{"cached_tokens", usage->cached_tokens}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage->completion_tokens},
          {"output_tokens_details", Json::Object{{"reasoning_tokens", usage->reasoning_tokens}}},
          {"total_tokens", usage->prompt_tokens + usage->completion_tokens}});
  out.emplace_back("timings", protocol::TimingsJson(*usage));
  out.emplace_back("thermocline", protocol::ExtensionJson(*usage, bound_));
  return out;
}

std::string ResponsesAnswer::Fail(const Status& status, CancelCause cause) {
  const protocol::ApiError error = protocol::FromStatus(status, cause);
  const Json code = error.code.empty() ? Json(error.type) : Json(error.code);
  std::string out =
      Event("error", {{"code", code}, {"message", error.message}, {"param", nullptr}});
  Json response = ResponseJson("failed", nullptr);
  response.Set("error", Json::Object{{"code", FailureCode(status)}, {"message", error.message}});
  return out + Event("response.failed", {{"response", std::move(response)}});
}

}  // namespace thermocline::openai
