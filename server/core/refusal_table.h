// The one table from a Status's reason to what HTTP, the OpenAI error body, gRPC and the metrics
// make of it.
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
  StatusCode grpc_code;     // gRPC's codes have these numbers
  const char* grpc_reason;  // of google.rpc.ErrorInfo
  // The label of requests_rejected_total; nullptr: a fault of ours or an end, which is no
  // rejection.
  const char* rejected;
  const char* failed;  // the label of requests_failed_total
  bool retry_after;    // trying again helps, after Service::RetryAfterSeconds
  bool told;           // the message is for clients, too, not for the log alone
};

// In the order of Reason, one row each.
std::span<const RefusalRow> RefusalTable();
// Also of OK, which is HTTP's 200.
const RefusalRow& RowOf(const Status& status);

// Returns what a client may read of the status.
std::string MessageFor(const Status& status);

// Counts it as rejected, by its reason.
void CountRejection(Metrics& metrics, const Status& status);

}  // namespace thermocline::server
