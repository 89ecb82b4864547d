// The workload: independent requests, and requests that follow an answer.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>

#include "loadtest/workload/answer.h"
#include "loadtest/workload/arrival.h"
#include "loadtest/workload/prompts.h"

namespace thermocline::loadtest {

enum class WorkloadKind {
  kChat,
  kMultiTurn,
  kLongBesideShort,
  kCancelStorm,
  kSlowReaders,
  kMalformed
};
inline constexpr std::array<std::string_view, 6> kWorkloadNames = {
    "chat", "multi-turn", "long-beside-short", "cancel-storm", "slow-readers", "malformed"};

struct WorkloadOptions {
  WorkloadKind kind = WorkloadKind::kChat;
  std::uint64_t seed = 1;
  TokenRange prompt_tokens{.low = 64, .high = 64}, max_tokens{.low = 64, .high = 64};
  bool ignore_eos = false;
  double share = 0.3;  // share of requests that are long, leave, read slowly or are malformed
  TokenRange long_prompt_tokens{.low = 1024, .high = 1024};
  double read_pause_s = 0.2;  // for slow readers
  int turns = 4;              // per conversation
  int shared_prefix_tokens = 64;
  double think_s = 0;  // mean pause before the next turn, exponentially distributed
  std::vector<DatasetEntry> dataset = {};  // empty: random words
  std::vector<TraceEntry> trace = {};      // lengths of the n-th request, if given
  TokenScale scale = {};
};

// Requests depend only on the seed and their number, not on the order or speed of answers.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual Request Next(std::uint64_t id) = 0;

  struct FollowUp {
    Request request;
    double think_s = 0;  // between the answer and the next request
  };
  // The next turn after an answer; nullopt: the conversation has ended.
  virtual std::optional<FollowUp> After(const Answer& /*answer*/, std::uint64_t /*id*/) {
    return std::nullopt;
  }
};

std::unique_ptr<Workload> MakeWorkload(const WorkloadOptions& options);

}  // namespace thermocline::loadtest
