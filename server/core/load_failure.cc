#include "server/core/load_failure.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/strings.h"

namespace thermocline::server {

Status LoadFailure(const Service& service, const Status& why) {
  std::string reason = why.message();
  const std::string folder =
      std::filesystem::path(service.config().model.path).parent_path().string() + "/";
  for (std::size_t at = reason.find(folder); folder.size() > 1 && at != std::string::npos;
       at = reason.find(folder, at))
    reason.erase(at, folder.size());
  return base::Unavailable("the model '", service.model_name(), "' cannot be loaded: ", reason)
      .WithReason(Reason::kLoadFailed);
}

void LogLoad(const Service& service, const Status& loaded, double seconds) {
  constexpr int kMsPerS = 1000;
  const std::string& name = service.model_name();
  if (loaded.ok()) {
    base::LogInfo("the model ", name, " is awake after ", static_cast<int>(seconds * kMsPerS),
                  " ms: ", base::HumanBytes(service.engine()->Stats().memory_planned), " planned");
  } else {
    base::LogError("the model ", name, " cannot be loaded: ", loaded.message());
  }
}

}  // namespace thermocline::server
