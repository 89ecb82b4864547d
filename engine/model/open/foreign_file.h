// Recognises files and folders that people give for a model: projectors, adapters, checkpoints of
// other programs, web pages that were saved under a model's name.
#pragma once

#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace thermocline::model {

// The first bytes of a file that WhatFileIs looks at.
inline constexpr std::size_t kForeignBytes = 64;

// Names the file's kind and a remedy, by its first bytes (at most kForeignBytes) and its name;
// empty if the kind is not known.
std::string WhatFileIs(const std::string& path, std::string_view begin);
// InvalidArgument names the contents of a folder without config.json.
Status ForeignFolder(const std::string& folder);

}  // namespace thermocline::model
