#include "server/protocol/error.h"

#include "engine/base/strings.h"
#include "server/core/refusal_table.h"

namespace thermocline::protocol {

namespace {

// They repeat the client's input.
constexpr std::size_t kMessageBytesMax = 2048, kParamBytesMax = 256;

// Fields with another name in the engine.
std::string ParamOf(const std::string& field) {
  static constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"ffn_mode", "x_thermocline.ffn_mode"},
      {"kl_max", "x_thermocline.kl_max"},
      {"spec.mode", "x_thermocline.speculation"},
      {"draft_tokens", "x_thermocline.draft_tokens"}};
  for (const auto& [ours, name] : kNames)
    if (field == ours) return name;
  return field;
}

}  // namespace

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

ApiError FromStatus(const Status& status) {
  const server::RefusalRow& row = server::RowOf(status);
  ApiError error{.http_status = row.http_status,
                 .type = row.openai_type,
                 .code = row.openai_code,
                 .param = ParamOf(status.field()),
                 .message = server::MessageFor(status),
                 .details = {}};
  for (const auto& [name, number] : status.numbers())
    error.details.emplace_back(std::string(name), number);
  return error;
}

ApiError FromStatus(const Status& status, CancelCause cause) {
  ApiError error = FromStatus(status);
  if (cause != CancelCause::kNone) error.details.emplace_back("cause", CancelCauseName(cause));
  return error;
}

}  // namespace thermocline::protocol
