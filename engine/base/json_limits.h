// JSON of files, whose values take many times the bytes of their text.
#pragma once

#include <cstddef>
#include <string_view>

#include "engine/base/json.h"

namespace thermocline::base {

// ResourceExhausted: the text has more values than `values_max`; else as ParseJson.
Result<Json> ParseJsonOf(std::string_view text, std::size_t values_max);

}  // namespace thermocline::base
