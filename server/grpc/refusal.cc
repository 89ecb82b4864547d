#include "server/grpc/refusal.h"

#include "engine/base/strings.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "server/core/refusal_table.h"

namespace thermocline::rpc {
namespace {

// Fields with another name in the engine.
std::string FieldOf(const std::string& field) {
  static constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"logit_bias", "sampling.logit_bias"},
      {"spec.mode", "speculation.mode"},
      {"draft_tokens", "speculation.draft_tokens"},
      {"stop", "stop.stop"},
      {"stop_token_ids", "stop.stop_token_ids"},
      {"max_tokens", "stop.max_tokens"},
      {"min_tokens", "stop.min_tokens"},
      {"logprobs", "response.top_logprobs"},
      {"dry_multiplier", "sampling.dry.multiplier"},
      {"dry_base", "sampling.dry.base"},
      {"dry_allowed_length", "sampling.dry.allowed_length"},
      {"dry_penalty_last_n", "sampling.dry.penalty_last_n"}};
  for (const auto& [ours, name] : kNames)
    if (field == ours) return name;
  return field;
}

google::rpc::ErrorInfo InfoOf(const Status& status) {
  google::rpc::ErrorInfo info;
  info.set_reason(server::RowOf(status).grpc_reason);
  info.set_domain("thermocline");
  auto& metadata = *info.mutable_metadata();
  if (!status.field().empty()) metadata["field"] = FieldOf(status.field());
  for (const auto& [name, number] : status.numbers()) metadata[std::string(name)] = StrCat(number);
  return info;
}

}  // namespace

::grpc::Status ToGrpc(const server::Service& service, const Status& status) {
  // Trailers have a size limit and carry the message twice.
  constexpr std::size_t kMessageBytesMax = 2048;
  if (status.ok()) return ::grpc::Status::OK;
  const server::RefusalRow& row = server::RowOf(status);
  const std::string message = base::Shorten(server::MessageFor(status), kMessageBytesMax);
  google::rpc::Status details;
  details.set_code(static_cast<int>(row.grpc_code));
  details.set_message(message);
  details.add_details()->PackFrom(InfoOf(status));
  if (row.retry_after) {
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(service.RetryAfterSeconds());
    details.add_details()->PackFrom(retry);
  }
  return {static_cast<::grpc::StatusCode>(row.grpc_code), message, details.SerializeAsString()};
}

Status BadField(const std::string& field, const std::string& message) {
  return base::InvalidArgument(message).WithField(field);
}

Status NoMessage() {
  return base::InvalidArgument(
      "the call has no message that can be read: one is needed, of the type and the size that the "
      "method takes");
}

}  // namespace thermocline::rpc
