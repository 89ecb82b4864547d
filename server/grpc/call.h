// The books of one call: whose it is, its id, its line in the log, its place in the metrics.
#pragma once

#include <grpcpp/server_context.h>

#include <chrono>
#include <optional>
#include <string>

#include "server/core/service.h"
#include "server/grpc/connection_credit.h"

namespace thermocline::rpc {

constexpr std::size_t kMetadataBytesMax = 32 << 10;  // of one call, names and values

// The client of a call.
struct Caller {
  // The client whose share of the time it takes: the key's name, else the peer's address, which is
  // "unix" on a Unix socket.
  std::string tenant;
  bool admin = false;  // may cancel what others asked for
  int priority_max = kPriorityMax;
};

// Counts in Service::active_requests, so that a drain waits for it, and tells `credit` what its
// connection has sent.
class Call {
 public:
  // `path`: "/thermocline.v1.Inference/Generate". The id is the metadata's, else a new one.
  Call(server::Service& service, ConnectionCredit& credit, ::grpc::CallbackServerContext& context,
       std::string path);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The message of an accepted call has come, before anything is answered. `id`: what it says of
  // its own; "" = nothing.
  void MessageCame(std::size_t bytes, const std::string& id = "");
  const std::string& id() const { return id_; }
  const Caller& caller() const { return caller_; }
  // The settings and keys that hold for it.
  const server::Live& live() const { return *live_; }
  // Why the caller may not call; OK: it may.
  const Status& refusal() const { return refusal_; }
  // When the client gives up; nothing: never.
  std::optional<std::chrono::steady_clock::time_point> deadline() const { return deadline_; }
  // True if a cancel that comes now is that deadline's. The client's own clock ends the call a
  // little earlier than ours, which has the deadline as it was sent: rounded up, and on its way.
  bool IsLate() const;
  std::chrono::steady_clock::time_point arrived() const { return arrived_; }
  // Sets the tokens of all prompts and choices, for the log.
  void SetTokens(std::int64_t prompt, std::int64_t completion) {
    prompt_tokens_ = prompt;
    completion_tokens_ = completion;
  }
  // Logs and counts the end, the first time, by HTTP's code of the same meaning. Throws nothing:
  // the call ends, whatever its books do.
  void End(const Status& status) noexcept;

 private:
  // Sends the id with the metadata of the answer, once it is known.
  void TellId();
  void Book(int http_status) const;

  server::Service& service_;
  ConnectionCredit& credit_;
  ::grpc::CallbackServerContext& context_;
  const std::string peer_;  // as CanonicalPeer
  const std::chrono::steady_clock::time_point arrived_;
  const std::shared_ptr<const server::Live> live_;
  const std::string path_;
  std::string id_, trace_id_;
  Caller caller_;
  Status refusal_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
  std::int64_t prompt_tokens_ = -1, completion_tokens_ = -1;  // -1 = of no generation
  std::size_t metadata_bytes_ = 0;
  bool accepted_ = false;
  bool reads_ = false;  // its message may come
  bool told_id_ = false, ended_ = false;
};

}  // namespace thermocline::rpc
