// Parses an OpenAI stream as it arrives: from pieces of a body and their times to an Answer.
#pragma once

#include <string>
#include <string_view>

#include "loadtest/client/sse_parser.h"
#include "loadtest/workload/answer.h"
#include "loadtest/workload/request.h"

namespace thermocline::loadtest {

class OpenAiAnswer {
 public:
  OpenAiAnswer(const Request& request, double t_scheduled, double t_sent);
  OpenAiAnswer(const OpenAiAnswer&) = delete;
  OpenAiAnswer& operator=(const OpenAiAnswer&) = delete;

  void OnHeader(double now, int status, std::string_view content_type);
  void OnBody(double now, std::string_view bytes);
  // Returns the answer as received until `now`. `status`: the reason for the transport's end.
  Answer Finish(double now, const Status& status);

  // The stream's last event has arrived; later bytes are ignored.
  bool complete() const { return done_marker_ || !failure_.ok(); }
  // True when the client is supposed to leave.
  bool should_disconnect() const { return leaves_ && answer_.chunks >= leave_after_; }
  std::int64_t chunks() const { return answer_.chunks; }

 private:
  void OnEvent(const std::string& data);
  void SetOutcome(const Status& status);
  void SetOutcomeOfStatus();
  void SetOutcomeOfStream(const Status& status);

  Answer answer_;
  const bool keep_text_, leaves_, malformed_;
  const int leave_after_;
  SseParser sse_;
  double now_ = 0;
  bool is_stream_ = false, done_marker_ = false;
  Status failure_;    // of the stream
  std::string body_;  // the start of a body that is not an event stream
};

}  // namespace thermocline::loadtest
