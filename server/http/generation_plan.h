// The result of a route: an answer, or the work that makes one.
#pragma once

#include <memory>
#include <variant>

#include "server/core/answer_format.h"
#include "server/core/submission.h"
#include "server/http/answer.h"
#include "server/http/response.h"

namespace thermocline::http {

// A submission, and the format of its answer.
struct GenerationPlan {
  server::Submission submission;  // encoded
  std::unique_ptr<server::AnswerFormat> format;
  bool stream = false;
};

using Action = std::variant<HttpResponse, GenerationPlan, AnswerStarter>;

}  // namespace thermocline::http
