// Answers do not depend on other requests: random schedules of requests of all kinds are compared,
// to the bit, with each request's answer alone. Tests instantiate SharedAnswers with an engine's
// settings.
//
// THERMOCLINE_SCHEDULES=1000 runs so many schedules for each setting.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <random>

#include "tests/engine/exec/flash_models.h"
#include "tests/engine/placement/alike_sides.h"
#include "tests/engine/sched/tidepool_engine.h"

namespace thermocline {

struct Place {
  const char* name;
  std::function<void(EngineConfig&)> change;
  int schedules = 8;
  bool brief = false;  // few short requests, for slow settings
};

inline int Schedules(int otherwise) {
  const char* asked = std::getenv("THERMOCLINE_SCHEDULES");
  return asked != nullptr ? std::atoi(asked) : otherwise;
}

inline constexpr int kKinds = 20, kTokens = 40;

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
    if (config.model.hot.device == HotDevice::kCpu && config.model.hot.bytes > 0)
      machine_.emplace(config);
    return config;
  }
  void TearDown() override {
    std::remove(bundle_.c_str());
    machine_.reset();
  }

  static GrammarSpec Grammar() {
    return {.kind = GrammarSpec::Kind::kGbnf, .text = "root ::= (\"The \" | \"A \") [a-z ]+ \".\""};
  }
  // Greedy and sampled requests, long and short prompts, and every use of a token's logits.
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
    if (i % 5 == 2) {  // a repetitive text, for drafts
      r.prompt.resize(std::min<std::size_t>(r.prompt.size(), 50));
      const std::vector<int> once = r.prompt;
      for (int k = 0; k < 3; ++k) r.prompt.insert(r.prompt.end(), once.begin(), once.end());
    }
    if (i % 6 == 4) r.stop = {" the", "xyz"};
    if (i % 9 == 7) r.sampling.constraint = *engine.Compile(Grammar());
    if (!GetParam().brief) return r;
    r.prompt.resize(std::min<std::size_t>(r.prompt.size(), 24));
    r.max_tokens = 4 + i % 4;
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
  // Some requests at random times, some of which are cancelled.
  static void RunSchedule(Engine& engine, std::span<const TokenChannel::Update> alone, int seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto pick = [&random](int n) {
      return static_cast<int>(random() % static_cast<unsigned>(n));
    };
    const int count = 2 + pick(GetParam().brief ? 4 : 9);
    std::vector<std::pair<int, Channel>> asked;
    for (int i = 0; i < count; ++i) {
      const int kind = pick(static_cast<int>(alone.size()));
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

  void GivesEachTheBitsItHasAlone() {
    EngineConfig config = Config();
    const int step_tokens = config.serving.step_tokens;
    std::vector<TokenChannel::Update> alone;
    config.serving.step_tokens = 1;
    {
      const auto engine = Load(config);
      for (int i = 0; i < (GetParam().brief ? kKinds / 2 : kKinds); ++i)
        alone.push_back(End(**engine->Submit(Kind(*engine, i))));
    }
    config.serving.step_tokens = step_tokens;
    const auto engine = Load(config);
    for (int seed = 0; seed < Schedules(GetParam().schedules) && !HasFailure(); ++seed)
      RunSchedule(*engine, alone, seed);
    const EngineStats stats = engine->Stats();
    EXPECT_GT(stats.steps.shared_steps, 0);
    EXPECT_GT(stats.steps.shared_decode_tokens, stats.steps.shared_steps / 2);
    EXPECT_TRUE(Eventually([&] { return engine->Stats().running == 0; }));
  }

  const std::string bundle_ = StrCat(testing::TempDir(), "shared-", ::getpid(), ".tcb");
  std::optional<placement::AlikeSides> machine_;  // for a placement on two sides
};

}  // namespace thermocline
