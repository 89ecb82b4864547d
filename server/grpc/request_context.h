// Per-call bookkeeping: caller, id, access log, metrics.
#pragma once

#include <grpcpp/server_context.h>

#include <chrono>
#include <optional>
#include <string>

#include "server/core/service.h"
#include "server/grpc/connection_credit.h"

namespace thermocline::rpc {

constexpr std::size_t kMetadataBytesMax = 32 << 10;  // names and values of one call

// The client of a call.
struct Caller {
  // The client for fair scheduling: the key's name, else the peer's address, which is "unix" on a
  // Unix socket.
  std::string tenant;
  bool admin = false;  // may cancel other clients' requests
  int priority_max = kPriorityMax;
  server::ModelRights models = {};
};

// Counts in Service::active_requests, so that a drain waits for it, and reports the connection's
// bytes to `credit`.
class RequestContext {
 public:
  // `path`: "/thermocline.v1.Inference/Generate". The id comes from the metadata, else it is new.
  RequestContext(server::Service& service, ConnectionCredit& credit,
                 ::grpc::CallbackServerContext& context, std::string path);
  ~RequestContext();
  RequestContext(const RequestContext&) = delete;
  RequestContext& operator=(const RequestContext&) = delete;

  // Called when the message of an accepted call has arrived, before any answer. `id`: the message's
  // own id; "" = none.
  void OnMessage(std::size_t bytes, const std::string& id = "");
  const std::string& id() const { return id_; }
  const Caller& caller() const { return caller_; }
  // The configuration and keys for this call.
  const server::ReloadableConfig& reloadable() const { return *reloadable_; }
  // The reason to reject the caller, or OK.
  const Status& refusal() const { return refusal_; }
  // The client's deadline, or nullopt.
  std::optional<std::chrono::steady_clock::time_point> deadline() const { return deadline_; }
  // The time at which the server ends it; nullopt = none.
  std::optional<std::chrono::steady_clock::time_point> time_limit() const;
  // True if a cancellation that arrives now is due to the deadline. The client's clock ends the
  // call a little before ours, whose deadline was rounded up and delayed on its way.
  bool IsLate() const;
  std::chrono::steady_clock::time_point arrived() const { return arrived_; }
  // Counts and logs the call for this model, which exists until End.
  void SetModel(server::Service& model) { model_ = &model; }
  // Sets the tokens of all prompts and choices, for the log.
  void SetTokens(std::int64_t prompt, std::int64_t completion) {
    prompt_tokens_ = prompt;
    completion_tokens_ = completion;
  }
  // Logs and counts the end, on the first call only, by the equivalent HTTP status. It never
  // throws, so that the call always ends.
  void End(const Status& status) noexcept;

 private:
  // Sends the id with the initial metadata, once it is known.
  void SendId();
  void Record(int http_status) const;

  server::Service& service_;
  server::Service* model_ = &service_;  // whose request it is, once that is known
  ConnectionCredit& credit_;
  ::grpc::CallbackServerContext& context_;
  const std::string peer_;  // as CanonicalPeer
  const std::chrono::steady_clock::time_point arrived_;
  const std::shared_ptr<const server::ReloadableConfig> reloadable_;
  const std::string path_;
  std::string id_, trace_id_;
  Caller caller_;
  Status refusal_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::int64_t prompt_tokens_ = -1, completion_tokens_ = -1;  // -1 = not a generation
  std::size_t metadata_bytes_ = 0;
  bool accepted_ = false;
  bool reads_ = false;  // its message may still arrive
  bool id_sent_ = false, ended_ = false;
};

}  // namespace thermocline::rpc
