// OpenAI's API: chat, completions, responses and embeddings; also rerank and token counts.
#pragma once

#include "server/http/router.h"

namespace thermocline::openai {

const http::Protocol& Routes();

}  // namespace thermocline::openai
