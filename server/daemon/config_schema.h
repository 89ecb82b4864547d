// The configuration as JSON Schema: what `thermoclined --config-schema` prints, for editors and for
// docs/configuration.md.
#pragma once

#include "engine/base/json.h"

namespace thermocline::server {

// An object with a member for each section and in it one for each key: type, range or choices,
// default, and `x-reloadable` where SIGHUP takes a new value. Draft 2020-12.
Json ConfigSchema();

}  // namespace thermocline::server
