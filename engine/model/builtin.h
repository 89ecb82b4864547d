// Finds models by path or by the name of a built-in one.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace thermocline::model {

// `model` itself if it is a path that exists; else the file of the built-in model of that name
// ("tidepool", "tidepool-draft", "tidepool-experts"), looked for in $THERMOCLINE_MODELS, beside the
// source tree of a build, and in
// ../share/thermocline/models of an installation. NotFound says where it looked.
Result<std::string> ResolveModel(const std::string& model);

}  // namespace thermocline::model
