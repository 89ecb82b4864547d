// The tokens of a chat, without an answer to it.
#pragma once

#include <vector>

#include "server/core/service.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// Returns the tokens of the prompt that the chat template makes of "messages" and the fields beside
// them. InvalidArgument with the field; errors of EncodeChat.
Result<std::vector<int>> ChatTokens(server::Service& service, Fields& fields);

}  // namespace thermocline::protocol
