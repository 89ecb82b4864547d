#include "server/core/load_failure.h"

#include <algorithm>
#include <filesystem>
#include <utility>

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

}  // namespace thermocline::server
