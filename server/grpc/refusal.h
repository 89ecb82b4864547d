// Why a call is refused or cut short, and how gRPC says so.
//
// The namespace is `rpc`: one named `grpc` would hide the library's.
#pragma once

#include <grpcpp/support/status.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/core/service.h"

namespace thermocline::rpc {

struct Refusal {
  ::grpc::StatusCode code;
  std::string message;
  std::string reason;                                              // of google.rpc.ErrorInfo
  std::vector<std::pair<std::string, std::string>> metadata = {};  // of google.rpc.ErrorInfo
  int retry_after_s = 0;  // of google.rpc.RetryInfo; 0 = trying again does not help
};

// A field of a request: missing, out of range, or otherwise wrong.
Refusal BadField(const std::string& field, const std::string& message);
// The one table from our codes to gRPC's. Internal errors keep their text for the log. `field`: of
// the request, if one is at fault.
Refusal FromStatus(const server::Service& service, const Status& status,
                   const std::string& field = "");
// A call that the end of the daemon leaves without an answer.
Refusal ShuttingDown(const server::Service& service);
// Why the model cannot be used now; nothing: it can.
std::optional<Refusal> NotReady(const server::Service& service);

// With google.rpc.Status as its binary details.
::grpc::Status ToGrpc(const Refusal& refusal);

// Counts it as rejected, by its reason; an error of ours is none.
void CountRejection(server::Service& service, const Refusal& refusal);
// What the metrics count a call as: HTTP's code of the same meaning.
int HttpStatusOf(::grpc::StatusCode code);

}  // namespace thermocline::rpc
