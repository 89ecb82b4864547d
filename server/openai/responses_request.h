// Parses the body of POST /v1/responses into a Request. The server stores no answers: every request
// contains its whole conversation.
#pragma once

#include "server/protocol/common_request.h"

namespace thermocline::openai {

struct ResponsesRequest : protocol::CommonRequest {
  Json::Object echo;  // members of the answer that repeat the request
};

// Pure. Fields that need stored answers (previous_response_id, conversation, item_reference) and
// unsupported ones are rejected by name.
Result<ResponsesRequest> ParseResponsesRequest(std::string_view body,
                                               const protocol::RequestDefaults& defaults,
                                               protocol::FieldLog* log = nullptr);

}  // namespace thermocline::openai
