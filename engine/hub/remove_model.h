// Deletes fetched models.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/status.h"
#include "engine/hub/model_name.h"

namespace thermocline::hub {

// Deletes the files of a fetched model, but those that other fetched models share; returns their
// bytes. In the hub's cache, and in OwnStore(); models that Ollama fetched are FailedPrecondition.
// NotFound: it is not on this machine.
Result<std::int64_t> RemoveModel(const ModelName& name);
// The same for the files at `path`, which a pull of this name has returned, even if the name means
// other files by now. OK if they are gone.
Result<std::int64_t> RemoveModelAt(const ModelName& name, const std::string& path);

}  // namespace thermocline::hub
