// Estimates the memory for a gRPC message.
#pragma once

#include <google/protobuf/message.h>

#include "server/core/request_memory.h"

namespace thermocline::rpc {

// As server::CostOf of the equivalent JSON body; a message has no objects of many members.
server::BodyCost CostOf(const google::protobuf::Message& message);

}  // namespace thermocline::rpc
