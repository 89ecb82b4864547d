#include "loadtest/workload/workload.h"

#include <unordered_map>

namespace thermocline::loadtest {
namespace {

// Requests of one turn; the kind of workload makes a share of them long, leaving, slow or
// malformed.
class SingleTurn : public Workload {
 public:
  explicit SingleTurn(const WorkloadOptions& options) : options_(options) {}

  Request Next(std::uint64_t id) override {
    Random random(options_.seed, id);
    Request request{.id = id, .ignore_eos = options_.ignore_eos, .conversation = id};
    request.max_tokens = options_.max_tokens.Draw(random);
    const bool odd = options_.kind != WorkloadKind::kChat && random.Uniform() < options_.share;
    const bool is_long = odd && options_.kind == WorkloadKind::kLongBesideShort;
    const TokenRange& range = is_long ? options_.long_prompt_tokens : options_.prompt_tokens;
    AddInput(range.Draw(random), random, request);
    Shape(odd, random, request);
    return request;
  }

 private:
  void AddInput(int prompt_tokens, Random& random, Request& request) const {
    if (!options_.trace.empty()) {
      const TraceEntry& entry = options_.trace[request.id % options_.trace.size()];
      if (entry.prompt_tokens > 0) prompt_tokens = entry.prompt_tokens;
      if (entry.max_tokens > 0) request.max_tokens = entry.max_tokens;
    }
    if (options_.dataset.empty()) {
      request.messages.push_back(
          {.role = "user", .content = RandomPrompt(random, prompt_tokens, options_.scale)});
      return;
    }
    const DatasetEntry& entry = options_.dataset[request.id % options_.dataset.size()];
    request.messages = entry.messages;
    if (entry.max_tokens > 0) request.max_tokens = entry.max_tokens;
    // A repeated entry gets another start, because the server's prefix cache has the original.
    if (request.id >= options_.dataset.size()) {
      std::string& first = request.messages.front().content;
      first = RandomWords(random, 6) + " " + first;
    }
  }

  void Shape(bool odd, Random& random, Request& request) const {
    switch (options_.kind) {
      case WorkloadKind::kLongBesideShort:
        request.kind = odd ? "long" : "short";
        break;
      case WorkloadKind::kCancelStorm: {
        // The client leaves in any phase: in the queue, in prefill, or during the answer.
        const int chunks = request.max_tokens > 0 ? request.max_tokens : 64;
        request.kind = odd ? "leaving" : "staying";
        if (odd) request.leave_after_chunks = static_cast<int>(random.Below(chunks));
        break;
      }
      case WorkloadKind::kSlowReaders:
        request.kind = odd ? "slow" : "fast";
        if (odd) request.read_pause_s = options_.read_pause_s;
        break;
      case WorkloadKind::kMalformed:
        request.kind = odd ? "malformed" : "well-formed";
        if (odd) request.fault = static_cast<Fault>(1 + random.Below(kNumFaults - 1));
        break;
      case WorkloadKind::kChat:
      case WorkloadKind::kMultiTurn:
        break;
    }
  }

  const WorkloadOptions options_;
};

// Conversations that share a system prompt. Each turn repeats the conversation so far, so that a
// server with a prefix cache computes only the new part.
class MultiTurn : public Workload {
 public:
  explicit MultiTurn(const WorkloadOptions& options) : options_(options) {
    Random random(options.seed, kSharedStream);
    TokenScale scale = options.scale;
    scale.overhead_tokens = 0;
    system_ = options.shared_prefix_tokens > 0
                  ? RandomPrompt(random, options.shared_prefix_tokens, scale)
                  : "";
  }

  Request Next(std::uint64_t id) override {
    Conversation& conversation = open_[id];
    if (!system_.empty()) conversation.messages.push_back({.role = "system", .content = system_});
    return Turn(id, id, conversation);
  }

  std::optional<FollowUp> After(const Answer& answer, std::uint64_t id) override {
    const auto found = open_.find(answer.conversation);
    if (found == open_.end()) return std::nullopt;
    Conversation& conversation = found->second;
    if (answer.outcome != Outcome::kOk || ++conversation.turn >= options_.turns) {
      open_.erase(found);
      return std::nullopt;
    }
    conversation.messages.push_back({.role = "assistant", .content = answer.text});
    FollowUp next{.request = Turn(id, answer.conversation, conversation)};
    if (options_.think_s > 0)
      next.think_s = Random(options_.seed ^ kThinkStream, id).Exponential(options_.think_s);
    return next;
  }

 private:
  static constexpr std::uint64_t kSharedStream = 0x5A5A5A5A5A, kThinkStream = 0x7417;
  struct Conversation {
    std::vector<Message> messages = {};
    int turn = 0;
  };

  Request Turn(std::uint64_t id, std::uint64_t conversation_id, Conversation& conversation) {
    Random random(options_.seed, id);
    const int tokens = options_.prompt_tokens.Draw(random);
    conversation.messages.push_back(
        {.role = "user", .content = RandomPrompt(random, tokens, options_.scale)});
    return {.id = id,
            .kind = conversation.turn == 0 ? "first turn" : "later turn",
            .messages = conversation.messages,
            .max_tokens = options_.max_tokens.Draw(random),
            .ignore_eos = options_.ignore_eos,
            .conversation = conversation_id,
            .turn = conversation.turn,
            .keep_text = true};
  }

  const WorkloadOptions options_;
  std::string system_;
  std::unordered_map<std::uint64_t, Conversation> open_;
};

}  // namespace

std::unique_ptr<Workload> MakeWorkload(const WorkloadOptions& options) {
  if (options.kind == WorkloadKind::kMultiTurn) return std::make_unique<MultiTurn>(options);
  return std::make_unique<SingleTurn>(options);
}

}  // namespace thermocline::loadtest
