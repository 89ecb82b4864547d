// Answers of Ollama's API: JSON lines, or one object.
#pragma once

#include <string>
#include <vector>

#include "server/core/answer_format.h"

namespace thermocline::ollama {

// The current time in RFC 3339, in UTC.
// The time now, or `when`, as RFC 3339.
std::string Timestamp();
std::string Timestamp(std::time_t when);

// Answers of /api/chat and /api/generate.
class OllamaAnswer final : public server::AnswerFormat {
 public:
  OllamaAnswer(std::string model, bool chat) : model_(std::move(model)), chat_(chat) {}

  const char* content_type() const override { return "application/x-ndjson"; }
  std::string OnStart(int) override { return ""; }
  std::string OnDelta(const server::ChoiceDelta& delta) override;
  std::string OnEnd(const server::ChoiceEnd& end) override;
  Json FullResponse(const Usage& total) override;
  std::string Fail(const Status& status, CancelCause cause) override;
  // Clients would treat any line as part of the answer.
  std::string KeepAlive() override { return ""; }

 private:
  // One line; `done` adds the statistics.
  Json Line(const chat::WholeMessage& output, const Usage* done) const;
  // Calls are sent once they are complete.
  void TakeCalls(chat::WholeMessage& output, bool all);

  const std::string model_;
  const bool chat_;
  chat::WholeMessage message_;
  std::size_t calls_sent_ = 0;
  FinishReason reason_ = FinishReason::kStop;
};

// Answers of /api/embed and /api/embeddings.
class EmbedAnswer final : public server::AnswerFormat {
 public:
  EmbedAnswer(std::string model, int dimensions, bool single)
      : model_(std::move(model)), dimensions_(dimensions), single_(single) {}
  std::string OnStart(int) override { return ""; }
  std::string OnDelta(const server::ChoiceDelta& delta) override {
    vectors_.insert(vectors_.end(), delta.embeddings.begin(), delta.embeddings.end());
    return "";
  }
  std::string OnEnd(const server::ChoiceEnd&) override { return ""; }
  std::string Fail(const Status&, CancelCause) override { return ""; }
  Json FullResponse(const Usage& total) override;

 private:
  const std::string model_;
  const int dimensions_;
  const bool single_;
  std::vector<std::vector<float>> vectors_;
};

}  // namespace thermocline::ollama
