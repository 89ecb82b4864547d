// llama-server's routes besides OpenAI's, some with field names of vLLM.
#pragma once

#include "server/http/router.h"

namespace thermocline::llama {

const http::Protocol& Routes();

}  // namespace thermocline::llama
