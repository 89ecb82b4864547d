// The answer to POST /api/pull: a line for each step of a download, or one object at its end.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/core/model_pull.h"
#include "server/http/answer.h"

namespace thermocline::ollama {

class PullAnswer final : public http::Answer {
 public:
  // Begins to fetch the model. Errors as ModelPull::Start.
  static Result<std::unique_ptr<http::Answer>> Start(server::Service& service,
                                                     const http::ResponseHead& head,
                                                     const std::string& name, bool stream,
                                                     std::function<void()> on_ready);

  Output NextOutput() override;
  http::HttpResponse FullResponse() override;
  bool ended() const override { return ended_; }
  std::string Open() override;
  const char* content_type() const override { return "application/x-ndjson"; }
  void Cancel(CancelCause) override { pull_->Cancel(); }

 private:
  PullAnswer(const http::ResponseHead& head, bool stream) : head_(head), stream_(stream) {}

  const http::ResponseHead head_;
  const bool stream_;
  bool ended_ = false;
  std::unique_ptr<server::ModelPull> pull_;
};

}  // namespace thermocline::ollama
