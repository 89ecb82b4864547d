// `thermocline rm`: deletes a model that `pull` fetched.
#include <cstdio>

#include "engine/base/strings.h"
#include "engine/hub/remove_model.h"
#include "tools/common/command_line.h"
#include "tools/common/console.h"

namespace thermocline::tools {

Command AddRemove(const OptionSet& set) {
  auto name = std::make_shared<std::string>();
  set.Add("name", *name, "A name as `thermocline list` shows it").Required();
  return [name]() -> Status {
    ASSIGN_OR_RETURN(const hub::ModelName parsed, hub::ParseModelName(*name));
    ASSIGN_OR_RETURN(const std::int64_t bytes, hub::RemoveModel(parsed));
    std::printf("%s: deleted, %s are free\n", base::EscapeControls(parsed.Shown()).c_str(),
                base::HumanBytes(bytes).c_str());
    return OkStatus();
  };
}

}  // namespace thermocline::tools
