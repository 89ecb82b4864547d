// Errors for clients of all APIs; the default format is OpenAI's.
#pragma once

#include <string>

#include "engine/api/request.h"
#include "engine/base/json.h"
#include "engine/base/status.h"

namespace thermocline::protocol {

struct ApiError {
  int http_status = 500;
  std::string type;   // "invalid_request_error", ...
  std::string code;   // "" = null
  std::string param;  // "" = null
  std::string message;
  Json::Object details;  // more members of the error object

  // {"error": {"message", "type", "param", "code", ...}}
  Json ToJson() const;
};

// The error format of an API.
struct ErrorShape {
  Json (*body)(const ApiError& error, const std::string& request_id);
  const char* id_header = nullptr;  // another header with the request's id, besides x-request-id
  const char* event = "";           // the line before an error in a stream of events
};

inline constexpr ErrorShape kOpenAiErrors = {
    .body = [](const ApiError& error, const std::string&) { return error.ToJson(); }};

// An error of HTTP itself, which has no Status.
ApiError ClientError(int http_status, const std::string& code, const std::string& message);

// Returns the public part of `status`, by server::RefusalTable, with its numbers as details.
ApiError FromStatus(const Status& status);
// The same for an answer that was cancelled, with the cause.
ApiError FromStatus(const Status& status, CancelCause cause);

}  // namespace thermocline::protocol
