// Questions before a run: is the server there, what does it serve, how many tokens are our words?
#pragma once

#include <optional>

#include "loadtest/client/http_client.h"
#include "loadtest/measure/server_metrics.h"
#include "loadtest/report/run_report.h"

namespace thermocline::loadtest {

// Sends one request and waits for its answer.
Answer AskOnce(asio::io_context& io, Client& client, Request request);

// Two short requests of known lengths tell the tokens of a word and of the template. Unavailable:
// the server cannot be reached. Where a server sends no usage, or refuses, the scale stays as it is
// and a note says so.
Result<TokenScale> Calibrate(asio::io_context& io, Client& client, ServerInfo& info);

// The first model of GET /v1/models, and the Server header; what is unknown stays empty.
ServerInfo ReadModels(const HttpTarget& target);

// The page of metrics; nothing without one.
std::optional<MetricValues> Scrape(const HttpTarget& target, const std::string& path);

// Waits until the server has no request any more, 10 s at most. Nothing: it does not say.
std::optional<IdleCheck> WaitUntilIdle(const HttpTarget& target, const std::string& path);

}  // namespace thermocline::loadtest
