// Offline work: a file of requests in the form of OpenAI's Batch API, answered in shared steps by
// the routes that serve them over HTTP, without a network.
#pragma once

#include <functional>
#include <string>

#include "server/core/server_config.h"

namespace thermocline::batch {

struct BatchOptions {
  std::string input;   // JSONL: {"custom_id", "method": "POST", "url", "body"} a line
  std::string output;  // JSONL: {"id", "custom_id", "response": {"status_code", "body"}, "error"}
  server::ServerConfig server;
  // Share of the requests that are answered, now and then; false: stop, to be resumed. May be
  // empty.
  std::function<bool(double)> on_progress = {};
};

struct BatchCounts {
  int requests = 0, answered = 0, failed = 0;  // failed: of the answered, with a status of 400 on
  int resumed = 0;                             // of the answered, by an earlier run
  int put_off = 0;  // not answered: a device failed, or something like it
};

// Answers all requests of the input, those first that need no model: what earlier runs have
// answered stays. The output is OUTPUT.part until every request is answered. InvalidArgument with
// file and line: a line that is no request; a custom_id that two have. Cancelled: on_progress ended
// it. Unavailable: another process writes the output, or some requests failed for now (a status of
// 429, or of 500 on). Errors as Engine::Load. `counts` is filled
// also after errors.
Status Run(const BatchOptions& options, BatchCounts& counts);

}  // namespace thermocline::batch
