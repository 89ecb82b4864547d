// The form in gRPC of the reason why a call is refused or cut short, by server::RefusalTable.
//
// The namespace is `rpc`: one named `grpc` would hide the library's.
#pragma once

#include <grpcpp/support/status.h>

#include "server/core/service.h"

namespace thermocline::rpc {

// With google.rpc.Status as its binary details: the reason, the field at fault, the numbers, and
// RetryInfo where trying again helps.
::grpc::Status ToGrpc(const server::Service& service, const Status& status);

// A field of a request: missing, out of range, or otherwise wrong.
Status BadField(const std::string& field, const std::string& message);

// An accepted call ends without a message, or with one that is none.
Status NoMessage();

}  // namespace thermocline::rpc
