#include "server/ollama/error.h"

#include "engine/base/strings.h"

namespace thermocline::ollama {

Json ErrorJson(const protocol::ApiError& error, const std::string&) {
  constexpr std::size_t kMessageBytesMax = 2048;
  const std::string where = error.param.empty() ? "" : error.param + ": ";
  return Json::Object{{"error", base::Shorten(where + error.message, kMessageBytesMax)}};
}

}  // namespace thermocline::ollama
