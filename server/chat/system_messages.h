// System messages as a model's template takes them.
#pragma once

#include "engine/base/json.h"
#include "server/chat/output_format.h"

namespace thermocline::chat {

// `messages` in OpenAI's shape, changed as little as the template of `format` allows:
// - system messages before the first user message are joined where the template takes only one,
//   and stand before the first user text where it takes none;
// - later ones keep their place, because moving them to the front would change the whole prompt.
//   Where the template does not take them there, they are user turns in <system-reminder>.
Json::Array PlaceSystemMessages(const OutputFormat& format, const Json::Array& messages);

// Joins user messages that follow each other, for templates that demand alternating roles.
Json::Array JoinUserMessages(Json::Array messages);

}  // namespace thermocline::chat
