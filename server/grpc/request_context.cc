#include "server/grpc/request_context.h"

#include <grpc/support/time.h>

#include <utility>

#include "engine/base/log.h"
#include "server/core/api_keys.h"
#include "server/core/held_model.h"
#include "server/core/refusal_table.h"
#include "server/core/request_id.h"
#include "server/core/request_limits.h"
#include "server/core/submission.h"
#include "server/core/trace_context.h"
#include "server/grpc/refusal.h"

namespace thermocline::rpc {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// gRPC sends a deadline as a number of at most three digits in units of milliseconds, 10 ms and so
// on, rounded up by at most 1%.
constexpr int kDeadlineSteps = 100;
constexpr milliseconds kDeadlineTravel{50};
constexpr std::int64_t kNoDeadlineS = 365 * 86'400;  // longer deadlines count as none
using Context = ::grpc::CallbackServerContext;

std::string_view Metadata(const Context& context, const char* name) {
  const auto& all = context.client_metadata();
  const auto found = all.find(name);
  if (found == all.end()) return {};
  return {found->second.data(), found->second.size()};
}

std::size_t MetadataBytes(const Context& context) {
  std::size_t bytes = 0;
  for (const auto& [name, value] : context.client_metadata()) bytes += name.size() + value.size();
  return bytes;
}

// Deadlines of centuries, which grpc-timeout allows, would overflow C++ clocks' nanoseconds.
std::optional<Clock::time_point> DeadlineOf(const Context& context, Clock::time_point now) {
  const gpr_timespec deadline = context.raw_deadline();
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  if (left.tv_sec >= kNoDeadlineS) return std::nullopt;
  return now + std::chrono::seconds(left.tv_sec) + std::chrono::nanoseconds(left.tv_nsec);
}

// "ipv4:127.0.0.1:1234" -> "127.0.0.1", "ipv6:%5B::1%5D:1234" -> "::1", "unix:" -> "unix".
std::string AddressOf(const std::string& peer) {
  const std::size_t colon = peer.find(':');
  std::string kind = peer.substr(0, colon);
  if (colon == std::string::npos || (kind != "ipv4" && kind != "ipv6")) return kind;
  std::string address = peer.substr(colon + 1, peer.rfind(':') - colon - 1);
  for (const std::string_view bracket : {"%5B", "%5D", "[", "]"}) {
    const std::size_t at = address.find(bracket);
    if (at != std::string::npos) address.erase(at, bracket.size());
  }
  return address;
}

// Returns the caller, or nullopt if a key is required and there is no valid one.
std::optional<Caller> Identify(const server::ReloadableConfig& reloadable, const Context& context) {
  if (!reloadable.needs_keys())
    return Caller{.tenant = server::NetworkOf(AddressOf(context.peer()))};
  if (context.client_metadata().count("authorization") != 1) return std::nullopt;
  const auto key = server::BearerKey(Metadata(context, "authorization"));
  const auto identity = key.has_value() ? reloadable.keys.Check(*key) : std::nullopt;
  if (!identity.has_value()) return std::nullopt;
  return Caller{.tenant = identity->name,
                .admin = identity->admin,
                .priority_max = identity->priority_max,
                .models = identity->models};
}

}  // namespace

RequestContext::RequestContext(server::Service& service, ConnectionCredit& credit, Context& context,
                               std::string path)
    : service_(service),
      credit_(credit),
      context_(context),
      peer_(CanonicalPeer(context.peer())),
      arrived_(Clock::now()),
      reloadable_(service.reloadable()),
      path_(std::move(path)) {
  ++service_.active_requests;
  id_ = server::RequestIdFrom(Metadata(context, "x-request-id"));
  if (const auto trace = server::ParseTraceparent(Metadata(context, "traceparent")))
    trace_id_ = trace->trace_id;
  deadline_ = DeadlineOf(context, arrived_);
  auto caller = Identify(*reloadable_, context);
  metadata_bytes_ = MetadataBytes(context);
  if (caller.has_value()) {
    caller_ = *std::move(caller);
  } else {
    refusal_ =
        base::Unauthenticated("the metadata 'authorization' must be 'Bearer ' and a valid key");
  }
  const int connections_max = reloadable_->config.ConnectionsMaxOfKey();
  if (reloadable_->needs_keys() && refusal_.ok() &&
      !credit_.AssignTo(peer_, caller_.tenant, connections_max))
    refusal_ = server::TooManyConnections(connections_max);
  if (metadata_bytes_ > kMetadataBytesMax && refusal_.ok()) {
    refusal_ = BadField("metadata", StrCat("the metadata has ", metadata_bytes_, " bytes; at most ",
                                           kMetadataBytesMax, " are taken"));
  }
  reads_ = accepted_ = refusal_.ok();
  credit_.CallBegan(peer_, metadata_bytes_, reads_);
}

RequestContext::~RequestContext() {
  if (reads_) credit_.MessageEnded(peer_, 0);
  credit_.CallEnded(peer_, metadata_bytes_, accepted_);
  --service_.active_requests;
}

void RequestContext::OnMessage(std::size_t bytes, const std::string& id) {
  if (std::exchange(reads_, false)) credit_.MessageEnded(peer_, bytes);
  if (server::IsRequestId(id)) {
    id_ = id;
  } else if (!id.empty() && refusal_.ok()) {
    refusal_ = BadField("request_id", StrCat("request_id must be printable ASCII without spaces, "
                                             "at most ",
                                             server::kRequestIdBytesMax, " characters"));
  }
  SendId();
}

void RequestContext::SendId() {
  if (!std::exchange(id_sent_, true)) context_.AddInitialMetadata("x-request-id", id_);
}

std::optional<Clock::time_point> RequestContext::time_limit() const {
  return server::DeadlineOf(arrived_, reloadable_->config.request_timeout_s, 0);
}

bool RequestContext::IsLate() const {
  if (!deadline_.has_value()) return false;
  return Clock::now() >= *deadline_ - (*deadline_ - arrived_) / kDeadlineSteps - kDeadlineTravel;
}

void RequestContext::End(const Status& status) noexcept {
  if (std::exchange(ended_, true)) return;
  try {
    SendId();
    Record(server::RowOf(status).http_status);
  } catch (const std::exception&) {  // the allocator threw, and a log line would need memory, too
  }
}

void RequestContext::Record(int http_status) const {
  model_->metrics().RequestEnded(path_, http_status);
  if (!reloadable_->config.log_access) return;
  const auto ms = std::chrono::duration_cast<milliseconds>(Clock::now() - arrived_);
  Json::Object fields = {{"method", "gRPC"}, {"route", path_},           {"status", http_status},
                         {"ms", ms.count()}, {"tenant", caller_.tenant}, {"id", id_}};
  if (server::IsOneOfSeveral(*model_)) fields.emplace_back("model", model_->model_name());
  if (!trace_id_.empty()) fields.emplace_back("trace", trace_id_);
  if (prompt_tokens_ >= 0) {
    fields.emplace_back("prompt_tokens", prompt_tokens_);
    fields.emplace_back("completion_tokens", completion_tokens_);
  }
  base::Log(base::LogLevel::kInfo, "access", fields);
}

}  // namespace thermocline::rpc
