// Anthropic's API, and what Claude Code asks for beside it.
#pragma once

#include "server/http/router.h"

namespace thermocline::anthropic {

const http::Protocol& Routes();

}  // namespace thermocline::anthropic
