// Anthropic's API, and other routes that Claude Code calls.
#pragma once

#include "server/http/router.h"

namespace thermocline::anthropic {

const http::Protocol& Routes();

}  // namespace thermocline::anthropic
