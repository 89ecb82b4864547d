// Questions to a server that may be there, over HTTP: its models and its readiness.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::tools {

// A server by its address and the key that it is sent; "" = none.
struct ServerAddress {
  std::string url, key;
};

struct ServerModels {
  std::string url;                 // of the address, without a '/' or "/v1" at the end
  std::vector<std::string> names;  // at least one
  std::int64_t context = 0;        // tokens of the first one's context; 0 = not said
  std::int64_t context_trained = 0;
};

// Asks GET /v1/models. InvalidArgument: the URL is malformed. Unavailable: nothing answers.
// Unauthenticated: the server wants a key, or another one. FailedPrecondition: it answers, but
// lists no models.
Result<ServerModels> ReadServerModels(const ServerAddress& address);

// Asks GET /v1/models/NAME: a server may accept names that it does not list. False on any error.
bool AcceptsModel(const ServerAddress& address, const std::string& name);

// Asks GET /health: false while a model is loaded. Unavailable: nothing answers.
Result<bool> IsServerReady(const ServerAddress& address);

}  // namespace thermocline::tools
