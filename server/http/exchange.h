// The books of one request: whose it is, what its answer carries, its line in the log, its place in
// the metrics and in a drain.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "server/core/service.h"
#include "server/http/connection.h"
#include "server/http/gate.h"
#include "server/http/response.h"

namespace thermocline::http {

// Thread-compatible: one connection's.
class Exchange {
 public:
  // From the request's first byte. A drain waits for it until Release.
  Exchange(server::Service& service, const Peer& peer);
  ~Exchange() { Release(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Takes down what the header tells: limits, and who calls. An answer, if the request goes no
  // further. A body is read only for those who may send one. `errors`: the shape of its errors.
  std::optional<HttpResponse> OnHeader(const HttpRequest& header, const Peer& peer,
                                       const protocol::ErrorShape& errors);
  // The connection ends with this answer.
  void EndConnection() { head_.keep_alive = false; }
  // The route's template, for metrics: never a raw path.
  void SetRoute(std::string route) { head_.route = route_ = std::move(route); }
  // The answer tells the client which of its fields are ignored; log and metrics tell the operator.
  void NoteIgnored(const std::vector<std::string>& fields);
  // Body bytes of the answer.
  void CountBytes(std::size_t bytes) { body_bytes_ += bytes; }
  // Logs and counts the answer, once. `generation`: of one that has tokens; nullptr: it has none.
  void Log(int status, const server::Generation* generation);
  // The answer is written, or nobody waits for it.
  void Release();

  // The settings that hold for it.
  const server::Live& live() const { return *live_; }
  // The limits of what is written to its client.
  WriteLimits write_limits() const {
    return {.stuck = std::chrono::seconds(live_->config.write_timeout_s),
            .bytes_per_s_min = live_->config.write_bytes_per_s_min};
  }
  const ResponseHead& head() const { return head_; }
  const Caller& caller() const { return caller_; }
  bool head_only() const { return method_ == "HEAD"; }

 private:
  server::Service& service_;
  const std::shared_ptr<const server::Live> live_;
  ResponseHead head_;
  Caller caller_;
  std::string method_ = "?", route_ = "unreadable", trace_id_;
  std::size_t body_bytes_ = 0;
  bool active_ = true;  // counted in Service::active_requests
  bool logged_ = false;
};

}  // namespace thermocline::http
