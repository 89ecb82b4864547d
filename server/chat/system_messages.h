// Adapts system messages to a model's template.
#pragma once

#include "engine/base/json.h"
#include "server/chat/output_format.h"

namespace thermocline::chat {

// `messages` in OpenAI's format, changed as little as the template of `format` allows:
// - system messages before the first user message are joined if the template accepts only one,
//   and prepended to the first user text if it accepts none;
// - later ones keep their place, because moving them to the front would change the whole prompt.
//   If the template does not accept them there, they are user turns in <system-reminder>.
Json::Array PlaceSystemMessages(const OutputFormat& format, const Json::Array& messages);

// Joins consecutive user messages, for templates that demand alternating roles.
Json::Array JoinUserMessages(Json::Array messages);

}  // namespace thermocline::chat
