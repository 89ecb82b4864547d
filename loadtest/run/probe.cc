#include "loadtest/run/probe.h"

#include <thread>

namespace thermocline::loadtest {
namespace {

constexpr double kFetchTimeout = 10;
// Different from the ids of measured requests, so that the prompts differ.
constexpr std::uint64_t kProbeId = std::uint64_t{1} << 50;

// The interval between checks for idleness, and the limit in seconds.
constexpr std::chrono::milliseconds kIdlePoll{50};
constexpr double kIdlePatience = 10;

std::string FirstModel(std::string_view body) {
  const auto json = base::ParseJson(body);
  const Json* data = json.ok() ? json->Find("data") : nullptr;
  if (data == nullptr || !data->is_array() || data->as_array().empty()) return "";
  const Json* id = data->as_array().front().Find("id");
  return id != nullptr && id->is_string() ? std::string(base::Shorten(id->as_string(), 200)) : "";
}

Request ProbeRequest(int words) {
  Random random(kProbeId, words);
  return {.id = kProbeId,
          .kind = "probe",
          .messages = {{.role = "user", .content = RandomWords(random, words)}},
          .max_tokens = 1};
}

}  // namespace

Answer SendOnce(asio::io_context& io, Client& client, Request request) {
  Answer result;
  io.restart();
  client.SetClock(RunClock());
  const auto guard = asio::make_work_guard(io);
  client.Send(std::move(request), 0, [&](const Answer& answer) {
    result = answer;
    io.stop();
  });
  io.run();
  return result;
}

Result<TokenScale> Calibrate(asio::io_context& io, Client& client, ServerInfo& info) {
  constexpr int kFew = 8, kMany = 56;
  TokenScale scale;
  const Answer few = SendOnce(io, client, ProbeRequest(kFew));
  if (few.outcome == Outcome::kError && few.status == 0) return base::Unavailable(few.error);
  const Answer many = few.outcome == Outcome::kOk ? SendOnce(io, client, ProbeRequest(kMany)) : few;
  if (many.outcome != Outcome::kOk) {
    info.notes.push_back(StrCat("the first request failed: ", many.error));
    return scale;
  }
  // A tokenizer cannot make a higher count from 56 words.
  constexpr std::int64_t kPlausibleMax = 100'000;
  if (!few.prompt_tokens.has_value() || !many.prompt_tokens.has_value() ||
      *many.prompt_tokens <= *few.prompt_tokens || *many.prompt_tokens > kPlausibleMax) {
    info.notes.emplace_back(
        "the server sends no usage, or none that can be true: prompts have about the wanted "
        "length, and a chunk is counted "
        "as a token");
    return scale;
  }
  const auto low = static_cast<double>(*few.prompt_tokens);
  scale.tokens_per_word = (static_cast<double>(*many.prompt_tokens) - low) / (kMany - kFew);
  scale.overhead_tokens = std::max(0.0, low - scale.tokens_per_word * kFew);
  scale.measured = true;
  return scale;
}

ServerInfo ReadModels(const HttpTarget& target) {
  ServerInfo info;
  const auto response = Fetch(target, ApiPath(target.options.url, "models"), kFetchTimeout);
  if (!response.ok()) return info;
  info.software = base::ReplaceInvalidUtf8(base::Shorten(response->server, 200));
  if (response->status == 200) info.model = FirstModel(response->body);
  return info;
}

std::optional<MetricValues> Scrape(const HttpTarget& target, const std::string& path) {
  const auto response = Fetch(target, path, kFetchTimeout);
  if (!response.ok() || response->status != 200) return std::nullopt;
  MetricValues values = ParseMetrics(response->body);
  return values.empty() ? std::nullopt : std::optional(std::move(values));
}

std::optional<IdleCheck> WaitUntilIdle(const HttpTarget& target, const std::string& path) {
  const RunClock clock;
  while (true) {
    const auto values = Scrape(target, path);
    const auto left = values.has_value() ? RequestsLeft(*values) : std::nullopt;
    if (!left.has_value()) return std::nullopt;
    const double waited = clock.Now();
    if (*left <= 0 || waited > kIdlePatience) return IdleCheck{.left = *left, .waited_s = waited};
    std::this_thread::sleep_for(kIdlePoll);
  }
}

}  // namespace thermocline::loadtest
