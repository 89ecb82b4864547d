// Converts errors to gRPC statuses, by server::RefusalTable.
//
// The namespace is `rpc`: one named `grpc` would hide the library's.
#pragma once

#include <grpcpp/support/status.h>

#include "server/core/service.h"

namespace thermocline::rpc {

// The binary details hold a google.rpc.Status with the reason, the field at fault, the numbers, and
// RetryInfo if a retry helps.
::grpc::Status ToGrpc(const server::Service& service, const Status& status);

// The error of a request's field that is missing, out of range, or otherwise wrong.
Status BadField(const std::string& field, const std::string& message);

// The error of an accepted call without a valid message.
Status NoMessage();

}  // namespace thermocline::rpc
