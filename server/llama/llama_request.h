// Parses the bodies of llama-server's POST /completion and /infill into Requests.
#pragma once

#include <string>
#include <vector>

#include "server/protocol/common_request.h"

namespace thermocline::llama {

struct LlamaRequest {
  server::GenerationRequest generation;
  bool stream = false;
  bool return_tokens = false;
  int n_predict = -1;                             // as requested; -1 = until the model ends
  std::vector<std::string> response_fields = {};  // paths of members; empty = all
};

// Unknown fields, and values that should change the answer but are not supported, are rejected by
// name.
Result<LlamaRequest> ParseCompletion(std::string_view body,
                                     const protocol::RequestDefaults& defaults);
Result<LlamaRequest> ParseInfill(std::string_view body, const protocol::RequestDefaults& defaults);

// Returns a request's sampling settings in llama-server's format.
Json SettingsJson(const Request& request, int n_predict);

}  // namespace thermocline::llama
