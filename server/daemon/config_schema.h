// The configuration as JSON Schema, which `thermoclined --config-schema` prints for editors and for
// docs/configuration.md.
#pragma once

#include "engine/base/json.h"

namespace thermocline::server {

// An object with a member per section, which has one per key: type, range or choices, default, and
// `x-reloadable` if SIGHUP applies a new value. Draft 2020-12.
Json ConfigSchema();

}  // namespace thermocline::server
