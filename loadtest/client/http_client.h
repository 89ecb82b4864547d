// A client for HTTP with server-sent events, for any server with OpenAI's API.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "loadtest/client/client.h"
#include "loadtest/client/http_call.h"
#include "loadtest/client/openai_body.h"

namespace thermocline::loadtest {

class HttpClient : public Client {
 public:
  struct Options {
    HttpTarget target;
    BodyOptions body;
    double timeout_s;
    bool keep_alive = true;  // reuse connections
  };
  HttpClient(asio::io_context& io, Options options);
  ~HttpClient() override;

  void Send(Request request, double t_scheduled, Done done) override;
  void EndAll(Outcome outcome) override;
  void SetClock(RunClock clock) override { clock_ = clock; }
  const ChunkCounter& chunk_counter() const override { return chunk_counter_; }

 private:
  struct PendingRequest;
  HttpCall::Events EventsOf(PendingRequest& pending, std::uint64_t number);
  void OnBody(PendingRequest& pending, std::string_view bytes);
  void OnEnd(std::uint64_t number, const Status& status, std::shared_ptr<Wire> wire);

  asio::io_context& io_;
  const Options options_;
  const std::string path_;
  RunClock clock_;
  ChunkCounter chunk_counter_;
  std::vector<std::shared_ptr<Wire>> idle_;
  std::unordered_map<std::uint64_t, std::unique_ptr<PendingRequest>> under_way_;
  std::uint64_t next_ = 0;
};

// A complete response of at most a few MiB.
struct HttpResponse {
  int status = 0;
  std::string body = {}, server = {};
};
// A blocking GET, for use before and after a run. Unavailable, DeadlineExceeded, DataLoss.
Result<HttpResponse> Fetch(const HttpTarget& target, std::string_view path, double timeout_s);

}  // namespace thermocline::loadtest
