// From the bodies of llama-server's own POST /completion and /infill to Requests.
#pragma once

#include <string>
#include <vector>

#include "server/protocol/common_request.h"

namespace thermocline::llama {

struct LlamaRequest {
  server::Asked asked;
  bool stream = false;
  bool return_tokens = false;
  int n_predict = -1;                             // as asked; -1 = to the end
  std::vector<std::string> response_fields = {};  // paths of the answer's members; empty = all
};

// Fields that there are not, and values that would change the answer and are not obeyed, are
// refused by name.
Result<LlamaRequest> ParseCompletion(std::string_view body,
                                     const protocol::RequestDefaults& defaults);
Result<LlamaRequest> ParseInfill(std::string_view body, const protocol::RequestDefaults& defaults);

// Returns the settings of a request's sampling in llama-server's form.
Json SettingsJson(const Request& request, int n_predict);

}  // namespace thermocline::llama
