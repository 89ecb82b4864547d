// The tokens of a chat, without an answer to it.
#pragma once

#include <vector>

#include "server/core/service.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// Of the prompt that the chat template makes of "messages" and what goes with them. InvalidArgument
// with the field; errors of EncodeChat.
Result<std::vector<int>> ChatTokens(server::Service& service, Fields& fields);

}  // namespace thermocline::protocol
