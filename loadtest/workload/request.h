// One request, and the behavior of its client.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace thermocline::loadtest {

struct Message {
  std::string role, content;
};

// The fault of a request in the workload `malformed`.
enum class Fault {
  kNone,
  kNotJson,         // a truncated body
  kNoInput,         // neither messages nor a prompt
  kWrongType,       // messages are a number
  kBadRole,         // of a message
  kNegativeTokens,  // max_tokens is -2; -1 would mean no limit
  kHotSampling,     // temperature is 1000
  kHugeNumber,      // n is 10^30
  kDeepNesting,     // ten thousand brackets
  kBadUtf8,         // in a message
};
inline constexpr int kNumFaults = static_cast<int>(Fault::kBadUtf8) + 1;
std::string_view FaultName(Fault fault);

struct Request {
  std::uint64_t id = 0;
  // Requests of one kind have their own statistics: "chat", "long", "slow", ...
  std::string kind = "chat";
  std::vector<Message> messages = {};
  int max_tokens = 0;  // 0 = the server's default
  bool ignore_eos = false;
  Fault fault = Fault::kNone;

  // A conversation has the id of its first request; turns count from 0.
  std::uint64_t conversation = 0;
  int turn = 0;
  bool keep_text = false;  // the next turn needs the answer's text

  // The client leaves after this many chunks of content; 0: once the request is sent.
  std::optional<int> leave_after_chunks = std::nullopt;
  double read_pause_s = 0;  // between reads of the answer
};

}  // namespace thermocline::loadtest
