#include "tools/common/model_output.h"

#include "engine/base/output_file.h"
#include "engine/model/model_file.h"
#include "engine/model/open/open_model.h"

namespace thermocline::tools {

void AddOverwriteOption(const OptionSet& set, bool& overwrite) {
  set.Add("--overwrite", overwrite, "Replace a file that is another model, or none");
}

Status CheckModelOutput(const std::string& out, const std::string& name, bool overwrite) {
  const auto is_same_model = [&](const base::File& file) {
    if (overwrite) return true;
    const auto model = model::OpenModelFile(file.path());
    if (!model.ok()) return false;
    const Json* found = (*model)->metadata.Find("general.name");
    return found != nullptr && found->is_string() && found->as_string() == name;
  };
  return base::CheckReplaceable(out, {.name = StrCat("a model named '", name, "'"),
                                      .matches = is_same_model,
                                      .advice = "choose another name, or give --overwrite"});
}

}  // namespace thermocline::tools
