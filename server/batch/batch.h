// Offline inference: answers a file of requests in the form of OpenAI's Batch API, in shared steps
// and by the routes of the HTTP server, without a network.
#pragma once

#include <functional>
#include <string>

#include "server/core/server_config.h"

namespace thermocline::batch {

struct BatchOptions {
  std::string input;   // JSONL: {"custom_id", "method": "POST", "url", "body"} a line
  std::string output;  // JSONL: {"id", "custom_id", "response": {"status_code", "body"}, "error"}
  server::ServerConfig server;
  // Called now and then with the fraction of answered requests; returns false to stop, to be
  // resumed later. May be empty.
  std::function<bool(double)> on_progress = {};
};

struct BatchCounts {
  int requests = 0, answered = 0, failed = 0;  // failed: answered with a status of 400 or more
  int resumed = 0;                             // answered by an earlier run
  int put_off = 0;  // not answered because of a temporary failure, such as a device's
};

// Answers all requests of the input, first those that need no model; answers of earlier runs are
// kept. The output is OUTPUT.part until every request is answered. InvalidArgument with file and
// line: a malformed request, or a custom_id that occurs twice. Cancelled: on_progress returned
// false. Unavailable: another process writes the output, or some requests failed temporarily (a
// status of 429, or of 500 or more). Errors as Engine::Load. `counts` is filled after errors, too.
Status Run(const BatchOptions& options, BatchCounts& counts);

}  // namespace thermocline::batch
