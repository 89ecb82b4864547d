// Probes before a run: the server's availability, its model, and its tokens per word.
#pragma once

#include <optional>

#include "loadtest/client/http_client.h"
#include "loadtest/measure/server_metrics.h"
#include "loadtest/report/run_report.h"

namespace thermocline::loadtest {

// Sends one request and waits for its answer.
Answer SendOnce(asio::io_context& io, Client& client, Request request);

// Measures the tokens per word and those of the template by two short requests of known lengths.
// Unavailable: the server cannot be reached. If a server sends no usage, or rejects the requests,
// the default scale is used and a note says so.
Result<TokenScale> Calibrate(asio::io_context& io, Client& client, ServerInfo& info);

// The first model of GET /v1/models, and the Server header; unknown values stay empty.
ServerInfo ReadModels(const HttpTarget& target);

// The parsed metrics; nullopt without any.
std::optional<MetricValues> Scrape(const HttpTarget& target, const std::string& path);

// Waits until the server has no more requests, at most 10 s. nullopt: it does not report them.
std::optional<IdleCheck> WaitUntilIdle(const HttpTarget& target, const std::string& path);

}  // namespace thermocline::loadtest
