#include "server/ollama/pull_answer.h"

#include <utility>

#include "server/core/refusal_table.h"
#include "server/protocol/error.h"

namespace thermocline::ollama {
namespace {

std::string Line(const Json& json) { return json.Dump() + "\n"; }

Json StatusJson(const char* status) { return Json::Object{{"status", status}}; }

Json ProgressJson(const server::ModelPull::Progress& progress) {
  const bool known = !progress.sha256.empty();
  return Json::Object{
      {"status", "pulling " + (known ? progress.sha256.substr(0, 12) : progress.label)},
      {"digest", known ? "sha256:" + progress.sha256 : progress.label},
      {"total", progress.bytes_total},
      {"completed", progress.bytes}};
}

}  // namespace

Result<std::unique_ptr<http::Answer>> PullAnswer::Start(server::Service& service,
                                                        const http::ResponseHead& head,
                                                        const std::string& name, bool stream,
                                                        std::function<void()> on_ready) {
  std::unique_ptr<PullAnswer> answer(new PullAnswer(head, stream));
  ASSIGN_OR_RETURN(answer->pull_, server::ModelPull::Start(service, name, std::move(on_ready)));
  return std::unique_ptr<http::Answer>(std::move(answer));
}

std::string PullAnswer::Open() { return stream_ ? Line(StatusJson("pulling manifest")) : ""; }

http::Answer::Output PullAnswer::NextOutput() {
  Output output;
  if (ended_) return output;
  const auto news = pull_->Take();
  if (news.progress.has_value() && stream_) output.events = Line(ProgressJson(*news.progress));
  if (!news.end.has_value()) return output;
  const Status& end = *news.end;
  output.complete = end.ok() && !stream_;
  if (output.complete) return output;
  ended_ = output.last = true;
  if (!stream_) {
    output.response = http::ErrorResponse(head_, protocol::FromStatus(end));
    output.last = false;
    return output;
  }
  output.events += Line(end.ok() ? StatusJson("success")
                                 : Json(Json::Object{{"error", server::MessageFor(end)}}));
  return output;
}

http::HttpResponse PullAnswer::FullResponse() {
  ended_ = true;
  return http::JsonResponse(head_, 200, StatusJson("success"));
}

}  // namespace thermocline::ollama
