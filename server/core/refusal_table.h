// The one table that maps a Status's reason to HTTP, the OpenAI error body, gRPC and the metrics.
#pragma once

#include <span>
#include <string>

#include "engine/base/status.h"
#include "server/metrics/metrics.h"

namespace thermocline::server {

struct RefusalRow {
  Reason reason;
  int http_status;
  const char* openai_type;
  const char* openai_code;  // "" = null
  StatusCode grpc_code;     // numbered as gRPC's codes
  const char* grpc_reason;  // in google.rpc.ErrorInfo
  // The label of requests_rejected_total; nullptr for faults of the server and for ends, which are
  // no rejections.
  const char* rejected;
  const char* failed;   // the label of requests_failed_total
  bool retry_after;     // a retry helps, after Service::RetryAfterSeconds
  bool public_message;  // clients get the message; otherwise only the log does
};

// One row per Reason, in their order.
std::span<const RefusalRow> RefusalTable();
// The row of a status; OK has one, too (HTTP's 200).
const RefusalRow& RowOf(const Status& status);

// Returns the text that a client gets for the status.
std::string MessageFor(const Status& status);

// Counts a rejected request by its reason.
void CountRejection(Metrics& metrics, const Status& status);

}  // namespace thermocline::server
