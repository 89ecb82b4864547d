#include "server/ollama/ollama_answer.h"

#include <chrono>
#include <ctime>

#include "server/protocol/embedding_answer.h"
#include "server/protocol/error.h"

namespace thermocline::ollama {
namespace {

std::int64_t Nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

}  // namespace

std::string Timestamp() { return Timestamp(std::time(nullptr)); }

std::string Timestamp(std::time_t when) {
  std::tm utc = {};
  gmtime_r(&when, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

Json OllamaAnswer::Line(const chat::WholeMessage& output, const Usage* done) const {
  Json::Object line{{"model", model_}, {"created_at", Timestamp()}};
  if (chat_) {
    Json::Object message{{"role", "assistant"}, {"content", output.text}};
    if (!output.reasoning.empty()) message.emplace_back("thinking", output.reasoning);
    Json::Array calls;
    for (const chat::ToolCall& call : output.calls) {
      // A call that a limit cut off is omitted, because a client must not execute it.
      const auto arguments = base::ParseJson(call.arguments.empty() ? "{}" : call.arguments);
      if (!arguments.ok()) continue;
      calls.push_back(Json::Object{
          {"id", call.id},
          {"function",
           Json::Object{{"index", calls.size()}, {"name", call.name}, {"arguments", *arguments}}}});
    }
    if (!calls.empty()) message.emplace_back("tool_calls", std::move(calls));
    line.emplace_back("message", std::move(message));
  } else {
    line.emplace_back("response", output.text);
    if (!output.reasoning.empty()) line.emplace_back("thinking", output.reasoning);
  }
  line.emplace_back("done", done != nullptr);
  if (done == nullptr) return line;
  line.emplace_back("done_reason", FinishReasonName(reason_));
  line.emplace_back("total_duration",
                    Nanoseconds(done->queue_s + done->prefill_s + done->decode_s));
  line.emplace_back("load_duration", 0);
  line.emplace_back("prompt_eval_count", done->prompt_tokens);
  line.emplace_back("prompt_eval_duration", Nanoseconds(done->prefill_s));
  line.emplace_back("eval_count", done->completion_tokens);
  line.emplace_back("eval_duration", Nanoseconds(done->decode_s));
  return line;
}

void OllamaAnswer::TakeCalls(chat::WholeMessage& output, bool all) {
  const std::size_t whole = message_.calls.size() - (all || message_.calls.empty() ? 0 : 1);
  for (; calls_sent_ < whole; ++calls_sent_) output.calls.push_back(message_.calls[calls_sent_]);
}

std::string OllamaAnswer::OnDelta(const server::ChoiceDelta& delta) {
  message_.Add(delta.parts);
  chat::WholeMessage now;
  for (const chat::MessagePart& part : delta.parts) {
    if (part.kind == chat::MessagePart::Kind::kText) now.text += part.text;
    if (part.kind == chat::MessagePart::Kind::kReasoning) now.reasoning += part.text;
  }
  TakeCalls(now, false);
  if (now.text.empty() && now.reasoning.empty() && now.calls.empty()) return "";
  return Line(now, nullptr).Dump() + "\n";
}

std::string OllamaAnswer::OnEnd(const server::ChoiceEnd& end) {
  reason_ = end.reason;
  chat::WholeMessage rest;
  TakeCalls(rest, true);
  std::string out = rest.calls.empty() ? "" : Line(rest, nullptr).Dump() + "\n";
  return out + Line({}, &end.total).Dump() + "\n";
}

Json OllamaAnswer::FullResponse(const Usage& total) { return Line(message_, &total); }

std::string OllamaAnswer::Fail(const Status& status, CancelCause cause) {
  return Json(Json::Object{{"error", protocol::FromStatus(status, cause).message}}).Dump() + "\n";
}

Json EmbedAnswer::FullResponse(const Usage& total) {
  for (std::vector<float>& vector : vectors_)
    vector = protocol::Shortened(std::move(vector), dimensions_);
  if (single_)
    return Json::Object{
        {"embedding", protocol::VectorJson(vectors_.empty() ? std::vector<float>() : vectors_[0])}};
  return Json::Object{{"model", model_},
                      {"embeddings", protocol::VectorsJson(vectors_)},
                      {"total_duration", Nanoseconds(total.queue_s + total.prefill_s)},
                      {"load_duration", 0},
                      {"prompt_eval_count", total.prompt_tokens}};
}

}  // namespace thermocline::ollama
