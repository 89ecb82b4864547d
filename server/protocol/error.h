// Errors as APIs tell them; by themselves in OpenAI's shape.
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
  Json::Object details;  // further members of the error object

  // {"error": {"message", "type", "param", "code", ...}}
  Json ToJson() const;
};

// The form of an API's errors.
struct ErrorShape {
  Json (*body)(const ApiError& error, const std::string& request_id);
  const char* id_header = nullptr;  // has the request's id, beside x-request-id
};

inline constexpr ErrorShape kOpenAiErrors = {
    .body = [](const ApiError& error, const std::string&) { return error.ToJson(); }};

// An error of HTTP itself, for which there is no Status.
ApiError ClientError(int http_status, const std::string& code, const std::string& message);

// Returns the part of `status` that a client may see, by server::RefusalTable; its numbers are
// details.
ApiError FromStatus(const Status& status);
// The same of an answer that was cancelled, with the cause.
ApiError FromStatus(const Status& status, CancelCause cause);

}  // namespace thermocline::protocol
