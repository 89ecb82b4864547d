// What a route makes of a request: an answer, or a generation to be started.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "server/core/submission.h"
#include "server/http/response.h"
#include "server/openai/response.h"

namespace thermocline::http {

// What to submit, and how to answer.
struct GenerationPlan {
  // A prompt that its choices begin with (`echo` of /v1/completions).
  struct Echo {
    std::string text;
    bool bos_added = false;  // its first token is not part of the text
  };
  server::Submission submission;  // encoded
  std::vector<Echo> echoes = {};  // [prompts], or none
  openai::AnswerHead answer = {};
  bool stream = false;
};

using Action = std::variant<HttpResponse, GenerationPlan>;

}  // namespace thermocline::http
