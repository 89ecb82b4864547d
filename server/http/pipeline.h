// The steps of a request, in this order. The first step that answers is the last.
//
//   by its header (CheckHeader):
//     limits       supported framing, the number of headers, the target's length
//     page         Host and Origin: is a browser's page allowed to ask?
//     preflight    a browser's question before such a request is answered
//     key          the caller, and its access to this path
//   by its body (Session):
//     memory       the body is read into an account (RequestMemory), or rejected
//     cost         the memory of its values is estimated before they are made (CheckCost)
//     turn         a worker parses it in its tenant's turn (Workers); at once without a body
//     route        the protocol's handler: an answer, or a plan (Router)
//   by its plan (Session):
//     grammar      is compiled in its tenant's turn
//     generation   begins (GeneratedAnswer::Start)
#pragma once

#include <optional>
#include <string>

#include "server/core/service.h"
#include "server/http/access.h"
#include "server/http/response.h"

namespace thermocline::http {

// A request whose header has been read.
struct HeaderContext {
  server::Service& service;
  const server::ReloadableConfig& reloadable;
  const HttpRequest& header;
  const Peer& peer;
  ResponseHead& head;
  Caller& caller;  // set by the step `key`
};

struct HeaderAnswer {
  HttpResponse response;
  const char* route;  // its name in metrics: the route is not known yet
};

// Returns an answer, or nullopt if the request proceeds.
std::optional<HeaderAnswer> CheckHeader(const HeaderContext& context);

}  // namespace thermocline::http
