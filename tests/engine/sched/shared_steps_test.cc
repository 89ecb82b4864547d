// Answers do not depend on who else is served: random schedules of requests of all kinds against
// what each says alone, to the bit, with every place of the neurons, mode and draft.
//
// THERMOCLINE_SCHEDULES=1000 runs so many schedules for each setting.
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "tests/engine/exec/flash_models.h"
#include "tests/engine/sched/tidepool_engine.h"

namespace thermocline {
namespace {

struct Place {
  const char* name;
  std::function<void(EngineConfig&)> change;
};

int Schedules() {
  const char* asked = std::getenv("THERMOCLINE_SCHEDULES");
  return asked != nullptr ? std::atoi(asked) : 8;
}

constexpr int kKinds = 20, kTokens = 40;

class SharedAnswers : public testing::TestWithParam<Place> {
 protected:
  EngineConfig Config() {
    EngineConfig config = Tidepool();
    config.model.ffn.modes = "exact";
    config.model.spec.mode = SpecMode::kOff;
    GetParam().change(config);
    if (config.model.memory.ffn_share > 0) {
      config.model.memory.bundle = bundle_;
      exec::PackNeurons(config.model.path, bundle_);
    }
    return config;
  }
  void TearDown() override { std::remove(bundle_.c_str()); }

  static GrammarSpec Grammar() {
    return {.kind = GrammarSpec::Kind::kGbnf, .text = "root ::= (\"The \" | \"A \") [a-z ]+ \".\""};
  }
  // Greedy and sampled, long and short prompts, all that may follow a token's logits.
  static Request Kind(Engine& engine, int i) {
    Request r = Story(static_cast<std::uint64_t>(i), 8 + i * 7 % kTokens);
    for (int k = 0; k < i * 53 % 211; ++k) r.prompt.push_back(300 + (i / 2 + k) * 37 % 1500);
    r.sampling.temperature = i % 2 == 0 ? 0 : 0.9;
    r.sampling.top_p = i % 5 == 1 ? 0.8 : 1;
    r.sampling.frequency_penalty = i % 3 == 0 ? 0.5 : 0;
    r.sampling.repetition_penalty = i % 7 == 0 ? 1.2 : 1;
    r.sampling.dry_multiplier = i % 7 == 3 ? 0.8 : 0;
    r.logprobs = i % 4 == 1 ? 3 : -1;
    r.prompt_logprobs = i == 13;
    r.ignore_eos = i % 3 != 2;
    r.share_prompt = i == 4 || i == 5;
    if (i % 5 == 2) {  // a text to draft from
      r.prompt.resize(std::min<std::size_t>(r.prompt.size(), 50));
      const std::vector<int> once = r.prompt;
      for (int k = 0; k < 3; ++k) r.prompt.insert(r.prompt.end(), once.begin(), once.end());
    }
    if (i % 6 == 4) r.stop = {" the", "xyz"};
    if (i % 9 == 7) r.sampling.constraint = *engine.Compile(Grammar());
    return r;
  }
  static void ExpectSame(const TokenChannel::Update& got, const TokenChannel::Update& want,
                         const std::string& what) {
    if (got.reason == FinishReason::kCancelled) {
      ASSERT_LE(got.tokens.size(), want.tokens.size()) << what;
      EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), want.tokens.begin())) << what;
      return;
    }
    EXPECT_EQ(got.reason, want.reason) << what << got.error.message();
    EXPECT_EQ(got.tokens, want.tokens) << what;
    EXPECT_EQ(got.text, want.text) << what;
    ASSERT_EQ(got.scores.size(), want.scores.size()) << what;
    for (std::size_t k = 0; k < got.scores.size(); ++k) {
      EXPECT_EQ(got.scores[k].token, want.scores[k].token) << what;
      EXPECT_EQ(got.scores[k].logprob, want.scores[k].logprob) << what;
    }
    ASSERT_EQ(got.prompt_scores.size(), want.prompt_scores.size()) << what;
    for (std::size_t k = 0; k < got.prompt_scores.size(); ++k)
      EXPECT_EQ(got.prompt_scores[k].logprob, want.prompt_scores[k].logprob) << what;
  }
  // Some requests, at any time, some of which leave.
  static void RunSchedule(Engine& engine, std::span<const TokenChannel::Update> alone, int seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto pick = [&random](int n) {
      return static_cast<int>(random() % static_cast<unsigned>(n));
    };
    const int count = 2 + pick(9);
    std::vector<std::pair<int, Channel>> asked;
    for (int i = 0; i < count; ++i) {
      const int kind = pick(kKinds);
      Request request = Kind(engine, kind);
      request.tenant = pick(2) == 0 ? "a" : "b";
      request.priority = pick(8) == 0 ? 1 : 0;
      asked.emplace_back(kind, *engine.Submit(std::move(request)));
      if (pick(3) == 0) std::this_thread::sleep_for(std::chrono::microseconds(pick(4000)));
      if (pick(6) == 0)
        asked[static_cast<std::size_t>(pick(i + 1))].second->Cancel(CancelCause::kApi);
    }
    for (const auto& [kind, channel] : asked)
      ExpectSame(End(*channel), alone[static_cast<std::size_t>(kind)],
                 StrCat("schedule ", seed, ", request ", kind, ": "));
  }

  const std::string bundle_ = StrCat(testing::TempDir(), "shared-", ::getpid(), ".tcb");
};

TEST_P(SharedAnswers, GiveEachTheBitsItHasAlone) {
  EngineConfig config = Config();
  const int step_tokens = config.serving.step_tokens;
  std::vector<TokenChannel::Update> alone;
  config.serving.step_tokens = 1;
  {
    const auto engine = Load(config);
    for (int i = 0; i < kKinds; ++i) alone.push_back(End(**engine->Submit(Kind(*engine, i))));
  }
  config.serving.step_tokens = step_tokens;
  const auto engine = Load(config);
  for (int seed = 0; seed < Schedules() && !HasFailure(); ++seed) RunSchedule(*engine, alone, seed);
  const EngineStats stats = engine->Stats();
  EXPECT_GT(stats.steps.shared_steps, 0);
  EXPECT_GT(stats.steps.shared_answers, stats.steps.shared_steps / 2);
  EXPECT_TRUE(Eventually([&] { return engine->Stats().running == 0; }));
}

// Those that cannot share have their turns while others do.
TEST(SharedSteps, OthersHaveTurnsBesideThem) {
  EngineConfig config = Tidepool();
  config.model.ffn.modes = "dense";
  config.model.ffn.also = "exact";
  const auto engine = Load(config);
  const auto ends_within = [&](Request other) {
    std::vector<Channel> sharers;
    for (std::uint64_t i = 0; i < 3; ++i) sharers.push_back(*engine->Submit(Story(i, 400)));
    TokenChannel::Update update;
    for (const Channel& channel : sharers) channel->WaitAndTake(update);
    const auto end = End(**engine->Submit(std::move(other)));
    EXPECT_EQ(end.reason, FinishReason::kLength);
    bool before = true;
    for (const Channel& channel : sharers) {
      const auto one = End(*channel);
      before = before && one.usage.ended_at > end.usage.ended_at;
      EXPECT_LT(one.usage.preemptions, 60);  // not a turn for each token
    }
    return before;
  };
  Request scores = Story(8, 2), mode = Story(9, 40);
  scores.prompt_logprobs = true;
  scores.logprobs = 0;
  mode.ffn_mode = "exact";
  EXPECT_TRUE(ends_within(scores));
  EXPECT_TRUE(ends_within(mode));
}

void Drafts(EngineConfig& config, SpecMode mode, SpecSource source) {
  config.model.spec.mode = mode;
  config.model.spec.source = source;
  if (source == SpecSource::kModel)
    config.model.spec.draft = SOURCE_DIR "/config/models/tidepool-draft.gguf";
}

INSTANTIATE_TEST_SUITE_P(
    Settings, SharedAnswers,
    testing::Values(
        Place{"exact", [](EngineConfig&) {}},
        Place{"dense_two_at_a_time",
              [](EngineConfig& c) {
                c.model.ffn.modes = "dense";
                c.serving.step_tokens = 2;
              }},
        Place{"many_tokens_in_a_step",
              [](EngineConfig& c) {
                c.serving.step_tokens = 40;
                c.serving.sequences_max = 40;
                c.serving.itl_target_ms = 1000;
              }},
        Place{"short_chunks", [](EngineConfig& c) { c.serving.prefill_chunk = 7; }},
        Place{"with_loss", [](EngineConfig& c) { c.model.ffn.modes = "sign"; }},
        Place{"little_memory",
              [](EngineConfig& c) {
                c.model.context_length = 320;
                c.serving.prefix_cache_bytes = 0;
              }},
        Place{"little_memory_with_loss",
              [](EngineConfig& c) {
                c.model.ffn.modes = "sign";
                c.model.context_length = 320;
                c.serving.prefix_cache_bytes = 0;
              }},
        Place{"four_bit_keys", [](EngineConfig& c) { c.model.kv_type = KvType::kQ4_0; }},
        Place{"flash", [](EngineConfig& c) { c.model.memory.ffn_share = 0.6; }},
        Place{"two_sides", [](EngineConfig& c) { c.model.hot.bytes = 2 << 20; }},
        Place{"experts",
              [](EngineConfig& c) {
                c.model.path = SOURCE_DIR "/config/models/tidepool-experts.gguf";
                c.model.ffn.modes = "";
              }},
        Place{"ngram", [](EngineConfig& c) { Drafts(c, SpecMode::kSync, SpecSource::kNgram); }},
        Place{"draft_ahead",
              [](EngineConfig& c) { Drafts(c, SpecMode::kBranch, SpecSource::kModel); }},
        Place{"draft_that_decides",
              [](EngineConfig& c) {
                Drafts(c, SpecMode::kSync, SpecSource::kModel);
                c.model.spec.acceptance = SpecAcceptance::kRejection;
              }},
        Place{"itself_ahead",
              [](EngineConfig& c) {
                c.model.ffn.modes = "dense";
                Drafts(c, SpecMode::kBranch, SpecSource::kSelf);
              }}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace thermocline
