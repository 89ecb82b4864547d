// Finds models by path or by the name of a built-in one.
#pragma once

#include <string>

#include "engine/base/status.h"

namespace thermocline::model {

// Returns `model` itself if it is an existing path; otherwise the file of the built-in model of
// that name ("tidepool", "tidepool-draft", "tidepool-experts"), or of the fetched model
// of that name (engine/hub/model_name.h). Built-in models are searched in $THERMOCLINE_MODELS,
// beside the source tree of a build, and in ../share/thermocline/models of an installation.
// NotFound lists the searched folders,
// or says how the model is fetched.
Result<std::string> ResolveModel(const std::string& model);

}  // namespace thermocline::model
