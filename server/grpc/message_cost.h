// Limits on the work for a message of gRPC.
#pragma once

#include <google/protobuf/message.h>

#include "server/core/request_memory.h"

namespace thermocline::rpc {

// As server::CostOf of a body of JSON that says the same; a message has no objects of many members.
server::BodyCost CostOf(const google::protobuf::Message& message);

}  // namespace thermocline::rpc
