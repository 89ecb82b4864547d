// OpenAI's API: chat, completions, responses, embeddings; rerank and counts beside it.
#pragma once

#include "server/http/router.h"

namespace thermocline::openai {

const http::Protocol& Routes();

}  // namespace thermocline::openai
