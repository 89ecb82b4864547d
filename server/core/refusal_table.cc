#include "server/core/refusal_table.h"

#include <algorithm>
#include <array>

#include "engine/base/index.h"

namespace thermocline::server {
namespace {

using R = Reason;
using C = StatusCode;

constexpr const char* kClient = "invalid_request_error";
constexpr const char* kServer = "server_error";
constexpr const char* kLimit = "rate_limit_error";
constexpr bool kRetry = true, kPublic = true;

// Status 499 for a disconnected client is nginx's; only logs and metrics show it.
constexpr std::array kRows = {
    RefusalRow{R::kNone, 200, "", "", C::kOk, "OK", nullptr, "other", !kRetry, !kPublic},
    RefusalRow{R::kInvalidField, 400, kClient, "", C::kInvalidArgument, "INVALID_FIELD",
               "bad_request", "other", !kRetry, kPublic},
    RefusalRow{R::kUnsupported, 400, kClient, "unsupported_value", C::kUnimplemented,
               "UNIMPLEMENTED", "bad_request", "other", !kRetry, kPublic},
    RefusalRow{R::kOutOfRange, 400, kClient, "", C::kInvalidArgument, "INVALID_FIELD",
               "bad_request", "other", !kRetry, kPublic},
    RefusalRow{R::kContextLength, 400, kClient, "context_length_exceeded", C::kInvalidArgument,
               "CONTEXT_LENGTH_EXCEEDED", "too_long", "other", !kRetry, kPublic},
    RefusalRow{R::kChatTemplate, 400, kClient, "", C::kInvalidArgument, "INVALID_FIELD",
               "bad_request", "other", !kRetry, kPublic},
    RefusalRow{R::kNotLoaded, 400, kClient, "failed_precondition", C::kFailedPrecondition,
               "FAILED_PRECONDITION", "bad_request", "other", !kRetry, kPublic},
    // The item is missing for every client, so a retry does not help.
    RefusalRow{R::kNotFound, 404, kClient, "not_found", C::kNotFound, "NOT_FOUND", nullptr, "other",
               !kRetry, kPublic},
    RefusalRow{R::kModelNotFound, 404, kClient, "model_not_found", C::kNotFound, "MODEL_NOT_FOUND",
               "bad_request", "other", !kRetry, kPublic},
    RefusalRow{R::kRequestNotFound, 404, kClient, "not_found", C::kNotFound, "REQUEST_NOT_FOUND",
               "bad_request", "other", !kRetry, kPublic},
    RefusalRow{R::kAlreadyExists, 500, kServer, "", C::kInternal, "INTERNAL", nullptr, "other",
               !kRetry, !kPublic},
    RefusalRow{R::kMalformed, 400, kClient, "bad_request", C::kInvalidArgument, "MALFORMED",
               "bad_request", "other", !kRetry, kPublic},
    RefusalRow{R::kTooLarge, 413, kClient, "body_too_large", C::kResourceExhausted,
               "MESSAGE_TOO_LARGE", "bad_request", "other", !kRetry, kPublic},
    RefusalRow{R::kUnknownKey, 401, kClient, "invalid_api_key", C::kUnauthenticated,
               "INVALID_API_KEY", "auth", "other", !kRetry, kPublic},
    RefusalRow{R::kForbidden, 403, kClient, "permission_denied", C::kPermissionDenied,
               "PERMISSION_DENIED", "auth", "other", !kRetry, kPublic},
    RefusalRow{R::kHostNotAllowed, 403, kClient, "host_not_allowed", C::kPermissionDenied,
               "HOST_NOT_ALLOWED", "auth", "other", !kRetry, kPublic},
    RefusalRow{R::kOriginNotAllowed, 403, kClient, "origin_not_allowed", C::kPermissionDenied,
               "ORIGIN_NOT_ALLOWED", "auth", "other", !kRetry, kPublic},
    RefusalRow{R::kExhausted, 429, kLimit, "queue_full", C::kResourceExhausted, "QUEUE_FULL",
               "queue_full", "other", kRetry, kPublic},
    RefusalRow{R::kQueueFull, 429, kLimit, "queue_full", C::kResourceExhausted, "QUEUE_FULL",
               "queue_full", "other", kRetry, kPublic},
    RefusalRow{R::kPrefillBudget, 429, kLimit, "queue_full", C::kResourceExhausted, "QUEUE_FULL",
               "prefill_budget", "other", kRetry, kPublic},
    RefusalRow{R::kGrammarMemory, 429, kLimit, "grammar_memory", C::kResourceExhausted,
               "GRAMMAR_MEMORY", "grammar_memory", "other", kRetry, kPublic},
    RefusalRow{R::kRequestMemory, 429, kLimit, "request_memory", C::kResourceExhausted,
               "REQUEST_MEMORY", "request_memory", "other", kRetry, kPublic},
    RefusalRow{R::kConnections, 429, kLimit, "too_many_connections", C::kResourceExhausted,
               "TOO_MANY_CONNECTIONS", "connections", "other", kRetry, kPublic},
    RefusalRow{R::kDeadline, 504, kServer, "timeout", C::kDeadlineExceeded, "DEADLINE_EXCEEDED",
               "deadline", "other", !kRetry, kPublic},
    RefusalRow{R::kUnavailable, 503, kServer, "unavailable", C::kUnavailable, "UNAVAILABLE",
               "loading", "device", kRetry, kPublic},
    RefusalRow{R::kLoading, 503, kServer, "unavailable", C::kUnavailable, "LOADING", "loading",
               "other", kRetry, kPublic},
    RefusalRow{R::kLoadFailed, 503, kServer, "unavailable", C::kUnavailable, "UNAVAILABLE",
               "loading", "other", kRetry, kPublic},
    RefusalRow{R::kDraining, 503, kServer, "unavailable", C::kUnavailable, "DRAINING", "draining",
               "other", kRetry, kPublic},
    // Cancelled by another client: a retry is not this client's decision.
    RefusalRow{R::kCancelled, 400, "request_cancelled", "cancelled", C::kCancelled, "CANCELLED",
               nullptr, "other", !kRetry, kPublic},
    RefusalRow{R::kClientGone, 499, "request_cancelled", "cancelled", C::kCancelled, "CANCELLED",
               nullptr, "other", !kRetry, kPublic},
    // The model file is damaged.
    RefusalRow{R::kDataLoss, 500, kServer, "data_loss", C::kDataLoss, "DATA_LOSS", nullptr, "data",
               !kRetry, kPublic},
    RefusalRow{R::kInternal, 500, kServer, "", C::kInternal, "INTERNAL", nullptr, "other", !kRetry,
               !kPublic},
};

constexpr bool InOrder() {
  for (std::size_t i = 0; i < kRows.size(); ++i)
    if (kRows[i].reason != static_cast<Reason>(i)) return false;
  return kRows.size() == base::kNumReasons;
}
static_assert(InOrder(), "one row for each reason, in their order");

}  // namespace

std::span<const RefusalRow> RefusalTable() { return kRows; }

namespace {

// `text` with the names of files in place of absolute paths: clients may not see where the
// operator's files are.
std::string WithoutFolders(std::string text) {
  constexpr std::string_view kEnds = " :'\"\n,;";
  for (std::size_t at = text.find('/'); at != std::string::npos; at = text.find('/', at)) {
    const std::size_t end = std::min(text.find_first_of(kEnds, at), text.size());
    const std::size_t last = text.rfind('/', end - 1);
    const bool address = at > 0 && text.substr(at - 1, 3) == "://";
    const bool absolute = at == 0 || kEnds.find(text[at - 1]) != std::string_view::npos;
    if (absolute && !address)
      text.erase(at, last + 1 - at);
    else
      at = end;
  }
  return text;
}

}  // namespace

const RefusalRow& RowOf(const Status& status) { return kRows[base::Index(status.reason())]; }

std::string MessageFor(const Status& status) {
  const RefusalRow& row = RowOf(status);
  if (!row.public_message) return "internal error; the server's log has the details";
  constexpr int kServerError = 500;
  return row.http_status >= kServerError ? WithoutFolders(status.message()) : status.message();
}

void CountRejection(Metrics& metrics, const Status& status) {
  if (const char* reason = RowOf(status).rejected) metrics.RequestRejected(reason);
}

}  // namespace thermocline::server
