#include "loadtest/client/openai_answer.h"

#include "loadtest/client/stream_chunk.h"

namespace thermocline::loadtest {
namespace {

constexpr std::size_t kErrorBodyBytesMax = 16u << 10;

Outcome OutcomeOf(int status) {
  if (status == 429) return Outcome::kRateLimited;
  return status == 503 ? Outcome::kUnavailable : Outcome::kError;
}

}  // namespace

OpenAiAnswer::OpenAiAnswer(const Request& request, double t_scheduled, double t_sent)
    : keep_text_(request.keep_text),
      leaves_(request.leave_after_chunks.has_value()),
      malformed_(request.fault != Fault::kNone),
      leave_after_(request.leave_after_chunks.value_or(0)),
      sse_([this](const std::string& data) { OnEvent(data); }) {
  answer_.id = request.id;
  answer_.conversation = request.conversation;
  answer_.turn = request.turn;
  answer_.kind = request.kind;
  answer_.t_scheduled = t_scheduled;
  answer_.t_sent = t_sent;
}

void OpenAiAnswer::OnHeader(double now, int status, std::string_view content_type) {
  answer_.t_header = now;
  answer_.status = status;
  // Some servers omit the type of a stream, but none sends a stream as JSON or a page.
  is_stream_ = status == 200 && content_type.find("json") == std::string_view::npos &&
               content_type.find("html") == std::string_view::npos;
}

void OpenAiAnswer::OnBody(double now, std::string_view bytes) {
  now_ = now;
  if (!answer_.t_first_byte.has_value()) answer_.t_first_byte = now;
  if (complete()) return;
  answer_.t_last = now;
  if (!is_stream_) {
    body_.append(bytes.substr(0, kErrorBodyBytesMax - std::min(kErrorBodyBytesMax, body_.size())));
  } else if (Status fed = sse_.Feed(bytes); failure_.ok()) {
    failure_ = std::move(fed);
  }
}

void OpenAiAnswer::OnEvent(const std::string& data) {
  if (complete()) return;
  if (data == "[DONE]") {
    done_marker_ = true;
    return;
  }
  StreamChunk chunk = ParseStreamChunk(data);
  if (!chunk.parsed) {
    failure_ = base::DataLoss("an event is no chunk of an answer: ", ErrorText(data));
  } else if (!chunk.error.empty()) {
    failure_ = base::Unavailable(chunk.error);
  }
  if (!chunk.finish_reason.empty())
    answer_.finish_reason = base::ReplaceInvalidUtf8(base::Shorten(chunk.finish_reason, 40));
  if (chunk.prompt_tokens) answer_.prompt_tokens = chunk.prompt_tokens;
  if (chunk.output_tokens) answer_.output_tokens = chunk.output_tokens;
  if (chunk.cached_tokens) answer_.cached_tokens = chunk.cached_tokens;
  if (!chunk.content) return;
  ++answer_.chunks;
  if (!answer_.t_first_content.has_value()) answer_.t_first_content = now_;
  if (answer_.t_chunks.size() < kChunkTimesMax) answer_.t_chunks.push_back(now_);
  if (keep_text_ && answer_.text.size() < kTextBytesMax) answer_.text += chunk.text;
}

Answer OpenAiAnswer::Finish(double now, const Status& status) {
  if (is_stream_ && !complete()) sse_.End();
  // An answer ends at the time of its last byte, a failure at the time of its detection.
  if (!(status.ok() && answer_.t_first_byte.has_value())) answer_.t_last = now;
  SetOutcome(status);
  return std::move(answer_);
}

void OpenAiAnswer::SetOutcome(const Status& status) {
  if (status.code() == StatusCode::kCancelled) {
    answer_.outcome = Outcome::kCancelled;
  } else if (status.code() == StatusCode::kDeadlineExceeded) {
    answer_.outcome = Outcome::kTimeout;
    answer_.error = status.message();
  } else if (!answer_.t_header.has_value()) {
    answer_.error = status.ok() ? "the connection ended without an answer" : status.message();
  } else if (answer_.status != 200) {
    SetOutcomeOfStatus();
  } else {
    SetOutcomeOfStream(status);
  }
}

void OpenAiAnswer::SetOutcomeOfStatus() {
  answer_.outcome = OutcomeOf(answer_.status);
  answer_.error = StrCat("HTTP ", answer_.status, ": ", ErrorText(body_));
  const bool refused = answer_.status >= 400 && answer_.status < 500;
  if (malformed_ && refused && answer_.outcome == Outcome::kError) {
    answer_.outcome = Outcome::kRefused;
    answer_.error.clear();
  }
}

void OpenAiAnswer::SetOutcomeOfStream(const Status& status) {
  if (malformed_) {
    answer_.error = "a malformed request was answered with 200";
  } else if (!is_stream_) {
    answer_.error = StrCat("the answer is no stream of events: ", ErrorText(body_));
  } else if (!failure_.ok()) {
    answer_.error = failure_.message();
  } else if (!status.ok()) {
    answer_.error = status.message();
  } else if (!done_marker_ && answer_.finish_reason.empty()) {
    answer_.error = "the stream ended without [DONE] and without a reason";
  } else {
    answer_.outcome = Outcome::kOk;
  }
}

}  // namespace thermocline::loadtest
