// Errors in OpenAI's shape. The one table from Status to HTTP.
#pragma once

#include <string>

#include "engine/base/json.h"
#include "engine/base/status.h"

namespace thermocline::openai {

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

ApiError ClientError(int http_status, const std::string& code, const std::string& message);

// What a client may know of `status`: internal faults keep their words to the log.
ApiError FromStatus(const Status& status, const std::string& param = "");

}  // namespace thermocline::openai
