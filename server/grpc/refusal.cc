#include "server/grpc/refusal.h"

#include "engine/base/strings.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace thermocline::rpc {
namespace {

using Code = ::grpc::StatusCode;
using server::ServiceState;

const char* UnavailableReason(ServiceState state) {
  switch (state) {
    case ServiceState::kLoading:
      return "LOADING";
    case ServiceState::kDraining:
      return "DRAINING";
    default:
      return "UNAVAILABLE";
  }
}

// Why, as Metrics::RequestRejected has it.
std::string RejectionOf(const Refusal& refusal) {
  if (refusal.message.starts_with("the queue is full: prompts")) return "prefill_budget";
  static constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"QUEUE_FULL", "queue_full"}, {"CONTEXT_LENGTH_EXCEEDED", "too_long"},
      {"INVALID_API_KEY", "auth"},  {"DEADLINE_EXCEEDED", "deadline"},
      {"DRAINING", "draining"},     {"LOADING", "loading"},
      {"UNAVAILABLE", "loading"}};
  for (const auto& [reason, name] : kNames)
    if (refusal.reason == reason) return name;
  return "bad_request";
}

}  // namespace

Refusal BadField(const std::string& field, const std::string& message) {
  return {.code = Code::INVALID_ARGUMENT,
          .message = message,
          .reason = "INVALID_FIELD",
          .metadata = {{"field", field}}};
}

Refusal FromStatus(const server::Service& service, const Status& status, const std::string& field) {
  const auto make = [&](Code code, const char* reason) {
    Refusal refusal{.code = code, .message = status.message(), .reason = reason};
    if (!field.empty()) refusal.metadata.emplace_back("field", field);
    return refusal;
  };
  switch (status.code()) {
    case StatusCode::kCancelled:
      return make(Code::CANCELLED, "CANCELLED");
    case StatusCode::kInvalidArgument:
      return make(Code::INVALID_ARGUMENT, "INVALID_FIELD");
    case StatusCode::kOutOfRange:
      return make(Code::INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED");
    case StatusCode::kUnimplemented:
      return make(Code::UNIMPLEMENTED, "UNIMPLEMENTED");
    case StatusCode::kNotFound:
      return make(Code::NOT_FOUND, "NOT_FOUND");
    case StatusCode::kPermissionDenied:
      return make(Code::PERMISSION_DENIED, "PERMISSION_DENIED");
    case StatusCode::kFailedPrecondition:
      return make(Code::FAILED_PRECONDITION, "FAILED_PRECONDITION");
    case StatusCode::kDeadlineExceeded:
      return make(Code::DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED");
    case StatusCode::kDataLoss:
      return make(Code::DATA_LOSS, "DATA_LOSS");
    case StatusCode::kResourceExhausted: {
      Refusal full = make(Code::RESOURCE_EXHAUSTED, "QUEUE_FULL");
      full.retry_after_s = service.RetryAfterSeconds();
      return full;
    }
    case StatusCode::kUnavailable: {
      Refusal away = make(Code::UNAVAILABLE, UnavailableReason(service.state()));
      away.retry_after_s = service.RetryAfterSeconds();
      return away;
    }
    default:
      return {.code = Code::INTERNAL,
              .message = "internal error; the server's log has the details",
              .reason = "INTERNAL"};
  }
}

Refusal ShuttingDown(const server::Service& service) {
  return FromStatus(service, base::Unavailable("the server is shutting down"));
}

std::optional<Refusal> NotReady(const server::Service& service) {
  const Status readiness = service.Readiness();
  if (readiness.ok()) return std::nullopt;
  return FromStatus(service, readiness);
}

::grpc::Status ToGrpc(const Refusal& refusal) {
  constexpr std::size_t kMessageBytesMax = 2048;  // trailers have a bound, and this comes twice
  const std::string message = base::Shorten(refusal.message, kMessageBytesMax);
  google::rpc::Status details;
  details.set_code(static_cast<int>(refusal.code));
  details.set_message(message);
  google::rpc::ErrorInfo info;
  info.set_reason(refusal.reason);
  info.set_domain("thermocline");
  for (const auto& [key, value] : refusal.metadata) (*info.mutable_metadata())[key] = value;
  details.add_details()->PackFrom(info);
  if (refusal.retry_after_s > 0) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(refusal.retry_after_s);
    details.add_details()->PackFrom(retry);
  }
  return {refusal.code, message, details.SerializeAsString()};
}

void CountRejection(server::Service& service, const Refusal& refusal) {
  if (refusal.code != Code::INTERNAL) service.metrics().RequestRejected(RejectionOf(refusal));
}

int HttpStatusOf(Code code) {
  switch (code) {
    case Code::OK:
      return 200;
    case Code::CANCELLED:
      return 499;
    case Code::UNAUTHENTICATED:
      return 401;
    case Code::PERMISSION_DENIED:
      return 403;
    case Code::NOT_FOUND:
      return 404;
    case Code::RESOURCE_EXHAUSTED:
      return 429;
    case Code::UNAVAILABLE:
      return 503;
    case Code::DEADLINE_EXCEEDED:
      return 504;
    case Code::INTERNAL:
    case Code::DATA_LOSS:
    case Code::UNKNOWN:
      return 500;
    default:
      return 400;
  }
}

}  // namespace thermocline::rpc
