#include "server/openai/error.h"

#include "engine/base/strings.h"

namespace thermocline::openai {

namespace {
constexpr std::size_t kMessageBytesMax = 2048, kParamBytesMax = 256;  // they repeat what was asked
}

Json ApiError::ToJson() const {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  Json::Object error = {{"message", base::Shorten(message, kMessageBytesMax)},
                        {"type", type},
                        {"param", or_null(base::Shorten(param, kParamBytesMax))},
                        {"code", or_null(code)}};
  error.insert(error.end(), details.begin(), details.end());
  return Json::Object{{"error", std::move(error)}};
}

ApiError ClientError(int http_status, const std::string& code, const std::string& message) {
  return {.http_status = http_status,
          .type = "invalid_request_error",
          .code = code,
          .param = "",
          .message = message,
          .details = {}};
}

ApiError FromStatus(const Status& status, const std::string& param) {
  ApiError error{.http_status = 500,
                 .type = "server_error",
                 .code = "",
                 .param = param,
                 .message = status.message(),
                 .details = {}};
  const auto client = [&error](int http_status, const char* code) {
    error.http_status = http_status;
    error.type = "invalid_request_error";
    error.code = code;
  };
  const auto server = [&error](int http_status, const char* type, const char* code) {
    error.http_status = http_status;
    error.type = type;
    error.code = code;
  };
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      client(400, "");
      break;
    case StatusCode::kUnimplemented:
      client(400, "unsupported_value");
      break;
    case StatusCode::kOutOfRange:
      client(400, "context_length_exceeded");
      break;
    case StatusCode::kFailedPrecondition:  // what is asked for was not loaded
      client(400, "failed_precondition");
      break;
    case StatusCode::kCancelled:  // by somebody else: trying again is not for the client to decide
      server(400, "request_cancelled", "cancelled");
      break;
    case StatusCode::kNotFound:
      client(404, "not_found");
      break;
    case StatusCode::kPermissionDenied:
      client(403, "permission_denied");
      break;
    case StatusCode::kResourceExhausted:
      server(429, "rate_limit_error", "queue_full");
      break;
    case StatusCode::kUnavailable:
      server(503, "server_error", "unavailable");
      break;
    case StatusCode::kDeadlineExceeded:
      server(504, "server_error", "timeout");
      break;
    case StatusCode::kDataLoss:  // what the model's file holds is not what was written
      server(500, "server_error", "data_loss");
      break;
    default:
      error.message = "internal error; the server's log has the details";
      break;
  }
  return error;
}

}  // namespace thermocline::openai
