// The format in which a loaded model writes its answers.
#pragma once

#include "engine/chat.h"
#include "engine/text/tokenizer.h"
#include "server/chat/output_format.h"

namespace thermocline::server {

// Finds the format by rendering some twenty short conversations with the model's template.
chat::OutputFormat FormatOfModel(const ChatFormatter& chat, const text::Tokenizer& tokenizer);

}  // namespace thermocline::server
