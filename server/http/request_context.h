// Per-request bookkeeping: caller, response headers, access log, metrics and drain count.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "server/core/service.h"
#include "server/http/access.h"
#include "server/http/connection.h"
#include "server/http/response.h"

namespace thermocline::http {

// Thread-compatible; owned by one connection.
class RequestContext {
 public:
  // Begins at the request's first byte. A drain waits for it until Release.
  RequestContext(server::Service& service, const Peer& peer);
  ~RequestContext() { Release(); }
  RequestContext(const RequestContext&) = delete;
  RequestContext& operator=(const RequestContext&) = delete;

  // Records the caller and limits from the header. Returns a response if the request is rejected or
  // answered without its body, which is read only for authorized clients. `errors`: the form of
  // errors.
  std::optional<HttpResponse> OnHeader(const HttpRequest& header, const Peer& peer,
                                       const protocol::ErrorShape& errors);
  // Closes the connection after this answer.
  void EndConnection() { head_.keep_alive = false; }
  // Sets the route's template, never a raw path, for the metrics.
  void SetRoute(std::string route) { head_.route = route_ = std::move(route); }
  // Counts and logs the request for this model, which exists until Log.
  void SetModel(server::Service& model) { model_ = &model; }
  // Reports ignored fields: to the client in the answer, to the operator in log and metrics.
  void ReportIgnored(const std::vector<std::string>& fields);
  // Counts bytes of the answer's body.
  void CountBytes(std::size_t bytes) { body_bytes_ += bytes; }
  // Logs and counts the answer, once. `generation`: nullptr for an answer without tokens.
  void Log(int status, const server::Generation* generation);
  // Called when the answer is written or the client has disconnected.
  void Release();

  // The configuration for this request.
  const server::ReloadableConfig& reloadable() const { return *reloadable_; }
  // The limits for writing to this client.
  WriteLimits write_limits() const {
    return {.stuck = std::chrono::seconds(reloadable_->config.write_timeout_s),
            .bytes_per_s_min = reloadable_->config.write_bytes_per_s_min};
  }
  const ResponseHead& head() const { return head_; }
  const Caller& caller() const { return caller_; }
  bool head_only() const { return method_ == "HEAD"; }

 private:
  server::Service& service_;
  server::Service* model_ = &service_;  // whose request it is, once that is known
  const std::shared_ptr<const server::ReloadableConfig> reloadable_;
  ResponseHead head_;
  Caller caller_;
  std::string method_ = "?", route_ = "unreadable", trace_id_;
  std::size_t body_bytes_ = 0;
  bool active_ = true;  // counted in Service::active_requests
  bool logged_ = false;
};

}  // namespace thermocline::http
