// Tokenizes a chat's prompt without generating an answer.
#pragma once

#include <vector>

#include "server/core/service.h"
#include "server/protocol/fields.h"

namespace thermocline::protocol {

// Returns the prompt tokens of "messages" and the other fields for the chat template.
// InvalidArgument with the field; errors of EncodeChat.
Result<std::vector<int>> ChatTokens(server::Service& service, Fields& fields);

}  // namespace thermocline::protocol
