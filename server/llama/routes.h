// Routes that llama-server has beside OpenAI's, some with vLLM's names of fields.
#pragma once

#include "server/http/router.h"

namespace thermocline::llama {

const http::Protocol& Routes();

}  // namespace thermocline::llama
