// From the body of POST /v1/responses to a Request. Nothing is stored: every request carries its
// conversation.
#pragma once

#include "server/protocol/common_request.h"

namespace thermocline::openai {

struct ResponsesRequest : protocol::CommonRequest {
  Json::Object echo;  // what the answer repeats of the request
};

// Pure. What needs earlier answers (previous_response_id, conversation, item_reference) and what is
// not supported is refused by name.
Result<ResponsesRequest> ParseResponsesRequest(std::string_view body,
                                               const protocol::RequestDefaults& defaults,
                                               protocol::FieldLog* log = nullptr);

}  // namespace thermocline::openai
