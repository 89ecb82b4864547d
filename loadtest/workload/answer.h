// The result of one request: the times of its events, and the server's answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/json.h"

namespace thermocline::loadtest {

enum class Outcome {
  kOk,
  kError,        // no connection, a malformed answer, or a server error
  kTimeout,      // the client gave up
  kCancelled,    // the client left intentionally
  kRateLimited,  // 429, RESOURCE_EXHAUSTED
  kUnavailable,  // 503, UNAVAILABLE
  kRefused,      // a malformed request was rejected, as it should be
};
inline constexpr int kNumOutcomes = static_cast<int>(Outcome::kRefused) + 1;
std::string_view OutcomeName(Outcome outcome);

// Times are seconds since the start of the run. An event that did not happen has no time.
struct Answer {
  std::uint64_t id = 0, conversation = 0;
  int turn = 0;
  std::string kind = {};

  double t_scheduled = 0;
  double t_sent = 0;  // the client starts, if need be by connecting
  std::optional<double> t_header = {}, t_first_byte = {}, t_first_content = {};
  double t_last = 0;                  // the last byte of the answer, or the failure
  std::vector<double> t_chunks = {};  // times of chunks with content; the first kChunkTimesMax
  std::int64_t chunks = 0;            // all of them

  // The server's usage; nullopt if it sent none.
  std::optional<std::int64_t> prompt_tokens = {}, output_tokens = {}, cached_tokens = {};
  Outcome outcome = Outcome::kError;
  int status = 0;  // HTTP's, or gRPC's code
  std::string finish_reason = {}, error = {};
  std::string text = {};  // set if the request needs it

  // Output tokens by usage; without it the number of chunks, each of which has at least one token.
  std::int64_t tokens() const { return output_tokens.value_or(chunks); }
};

// Limits memory for a server that streams forever.
inline constexpr std::size_t kChunkTimesMax = 1u << 17;
inline constexpr std::size_t kErrorBytesMax = 300, kTextBytesMax = 1u << 20;

// The line of the raw log.
Json AnswerJson(const Answer& answer);

}  // namespace thermocline::loadtest
