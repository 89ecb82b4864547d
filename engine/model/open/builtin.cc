#include "engine/model/open/builtin.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "engine/base/file.h"
#include "engine/hub/find_model.h"

namespace thermocline::model {

Result<std::string> ResolveModel(const std::string& model) {
  if (base::PathExists(model)) return model;
  if (model != "tidepool" && model != "tidepool-draft" && model != "tidepool-experts") {
    const auto name = hub::ParseModelName(model);
    auto path = name.ok() ? hub::FindModel(*name) : name.status();
    if (path.ok()) return path;
    const bool refused = name.ok() && path.status().code() != StatusCode::kNotFound;
    if (refused) return path.status();
    return base::NotFound(
        model,
        ": no such file, and no built-in model (tidepool, tidepool-draft, "
        "tidepool-experts) of that name",
        name.ok() ? "; `thermocline pull " + model + "` fetches a model by its name" : "");
  }
  std::vector<std::filesystem::path> folders;
  if (const char* folder = std::getenv("THERMOCLINE_MODELS")) folders.emplace_back(folder);
  std::error_code error;
  const std::filesystem::path bin =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (auto up = bin; up.has_relative_path(); up = up.parent_path())
    folders.push_back(up / "config" / "models");
  folders.push_back(bin.parent_path() / "share" / "thermocline" / "models");
  for (const auto& folder : folders) {
    const std::string path = (folder / (model + ".gguf")).string();
    if (base::PathExists(path)) return path;
  }
  return base::NotFound("the built-in model ", model, " is not installed: ", model,
                        ".gguf is in none of $THERMOCLINE_MODELS, ", "config/models above ",
                        bin.string(), ", ", folders.back().string());
}

}  // namespace thermocline::model
