// Ollama's API, below /api.
#pragma once

#include "server/http/router.h"

namespace thermocline::ollama {

const http::Protocol& Routes();

}  // namespace thermocline::ollama
