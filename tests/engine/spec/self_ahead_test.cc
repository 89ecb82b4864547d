// The engine whose model drafts for itself while it verifies: it changes no text, and reports cases
// in which it cannot.
#include "tests/engine/spec/self_ahead.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>

#include "engine/base/log.h"
#include "engine/engine.h"
#include "tests/engine/exec/flash_models.h"
#include "tests/engine/placement/alike_sides.h"

namespace thermocline::spec {
namespace {

// Sanitizers are ten times as slow, so they run a part of the test.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kStoryTokens = 30, kCancelled = 5;
#else
constexpr int kStoryTokens = 90, kCancelled = 12;
#endif

EngineConfig Config(const SpecOptions& spec) {
  base::ConfigureLog(base::LogLevel::kError, false);
  EngineConfig config;
  config.model.path = kTidepool;
  config.model.threads = 2;
  config.model.spec = spec;
  return config;
}

Result<TokenChannel::Update> Ask(Engine& engine, const Request& request) {
  ASSIGN_OR_RETURN(const auto channel, engine.Submit(request));
  TokenChannel::Update update, all;
  while (!update.finished) {
    channel->WaitForUpdate(update);
    all.tokens.insert(all.tokens.end(), update.tokens.begin(), update.tokens.end());
  }
  all.usage = update.usage;
  all.reason = update.reason;
  return all;
}

Request Story(double temperature, int max_tokens = kStoryTokens) {
  Request request;
  request.prompt = Sequence(90);  // long enough for full blocks in a prefix cache
  request.prompt.push_back(static_cast<int>(400 + temperature * 10));
  request.sampling.temperature = temperature;
  request.sampling.seed = 5;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

void ExpectPlainText(Engine& engine, std::initializer_list<SpecMode> modes) {
  for (const double temperature : {0.0, 0.9}) {
    Request request = Story(temperature);
    request.spec_mode = SpecMode::kOff;
    const auto plain = Ask(engine, request);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    for (const SpecMode mode : modes) {
      request.spec_mode = mode;
      const auto drafted = Ask(engine, request);
      ASSERT_TRUE(drafted.ok()) << drafted.status().message();
      EXPECT_EQ(drafted->tokens, plain->tokens) << SpecModeName(mode);
      EXPECT_EQ(drafted->usage.completion_tokens, request.max_tokens) << SpecModeName(mode);
      EXPECT_GT(drafted->usage.cached_tokens, 64)
          << SpecModeName(mode);  // drafts on blocks of another request
    }
  }
}

std::int64_t Guessed(const SpecStats& stats) {
  return std::accumulate(stats.branch_hits.begin(), stats.branch_hits.end(), std::int64_t{0}) +
         std::accumulate(stats.branch_misses.begin(), stats.branch_misses.end(), std::int64_t{0});
}

TEST(SelfAhead, EveryModeGivesPlainText) {
  for (const char* modes : {"exact", "dense", "sign"}) {
    SpecOptions spec = Self(SpecMode::kAuto);
    spec.fixed = true;
    spec.self_shift = 20;  // some drafts are rejected
    EngineConfig config = Config(spec);
    config.model.ffn.modes = modes;
    const auto engine = Engine::Load(config);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    ExpectPlainText(**engine,
                    {SpecMode::kBranch, SpecMode::kExhaustive, SpecMode::kSync, SpecMode::kAuto});
    const SpecStats stats = (*engine)->Stats().spec;
    EXPECT_EQ(stats.source, "self");
    EXPECT_EQ(stats.not_ahead, "");
    EXPECT_GT(Guessed(stats), 0);
    EXPECT_GT(stats.accepted_tokens, 0);
    EXPECT_GT(stats.draft_tokens, stats.accepted_tokens);
  }
}

// In exhaustive mode the target waits for all branches, so with enough guesses most outcomes were
// drafted.
TEST(SelfAhead, WhatWasDraftedAheadIsVerifiedNext) {
  SpecOptions spec = Self(SpecMode::kExhaustive);
  spec.fixed = true;
  spec.tokens_max = 3;
  spec.width = 4;
  const auto engine = Engine::Load(Config(spec));
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const auto answer = Ask(**engine, Story(0));
  ASSERT_TRUE(answer.ok());
  const SpecUsage& usage = answer->usage.spec;
  EXPECT_GT(usage.branch_hits, usage.branch_misses);
  EXPECT_GT(2 * usage.accepted_tokens, usage.draft_tokens);
}

TEST(SelfAhead, RejectionSamplingGivesWholeAnswers) {
  SpecOptions spec = Self(SpecMode::kBranch);
  spec.fixed = true;
  spec.acceptance = SpecAcceptance::kRejection;
  const auto engine = Engine::Load(Config(spec));
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  for (const SpecMode mode : {SpecMode::kBranch, SpecMode::kExhaustive, SpecMode::kSync}) {
    Request request = Story(0.9);
    request.spec_mode = mode;
    const auto answer = Ask(**engine, request);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(answer->usage.completion_tokens, kStoryTokens);
    EXPECT_GT(answer->usage.spec.accepted_tokens, 0);
  }
}

// Drafts are not answers' tokens: the networks' counters and audits ignore them, on any thread.
TEST(SelfAhead, DraftsAreNeitherCountedNorAudited) {
  SpecOptions spec = Self(SpecMode::kBranch);
  spec.fixed = true;
  EngineConfig config = Config(spec);
  config.model.ffn.modes = "sign";
  config.model.ffn.audit_interval = 1;
  config.model.ffn.controller_recall = 0.97;
  const auto engine = Engine::Load(config);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const auto answer = Ask(**engine, Story(0));
  ASSERT_TRUE(answer.ok());
  const EngineStats stats = (*engine)->Stats();
  EXPECT_GT(stats.spec.drafted_tokens, answer->usage.completion_tokens / 2);
  const std::int64_t steps = stats.spec.drafts + stats.spec.plain_steps;
  std::int64_t audited = 0;
  for (const FfnLayerStats& layer : stats.ffn) audited += layer.audited_tokens;
  EXPECT_GT(audited, 0);
  EXPECT_LE(audited, steps * static_cast<std::int64_t>(stats.ffn.size()));
  for (const FfnLayerStats& layer : stats.ffn) {
    EXPECT_EQ(layer.tokens, answer->usage.completion_tokens - 1);  // the first is from prefill
    EXPECT_EQ(layer.steps, steps);
  }
}

TEST(SelfAhead, CancellingWhileBothWorkLeavesNothingBehind) {
  SpecOptions spec = Self(SpecMode::kBranch);
  spec.fixed = true;
  const auto engine = Engine::Load(Config(spec));
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const auto before = Ask(**engine, Story(0));
  ASSERT_TRUE(before.ok());
  for (int i = 0; i < kCancelled; ++i) {
    Request request = Story(0, 0);
    if (i % 2 == 1) request.spec_mode = SpecMode::kExhaustive;
    const auto channel = *(*engine)->Submit(request);
    TokenChannel::Update update;
    for (int seen = 0; seen < 7 * i && !update.finished;
         seen += static_cast<int>(update.tokens.size()))
      channel->WaitForUpdate(update);
    channel->Cancel();
    while (!update.finished) channel->WaitForUpdate(update);
    EXPECT_TRUE(update.reason == FinishReason::kCancelled ||
                update.reason == FinishReason::kLength);
  }
  const auto after = Ask(**engine, Story(0));
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->tokens, before->tokens);
}

TEST(SelfAhead, DraftsEndWithTheContext) {
  for (const int context : {2, 9, 64, 65, 80}) {
    EngineConfig config = Config(Self(SpecMode::kBranch));
    config.model.context_length = context;
    config.model.spec.fixed = true;
    const auto engine = Engine::Load(config);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    Request request;
    request.prompt = {1};
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    const auto drafted = Ask(**engine, request);
    request.spec_mode = SpecMode::kOff;
    const auto plain = Ask(**engine, request);
    ASSERT_TRUE(drafted.ok() && plain.ok());
    EXPECT_EQ(drafted->tokens, plain->tokens) << context;
    EXPECT_EQ(drafted->usage.prompt_tokens + drafted->usage.completion_tokens, context);
  }
}

// If the target cannot work on two threads, branch is rejected by name, and auto drafts in turn.
void ExpectRefused(EngineConfig config, const char* reason) {
  const auto has = [&](const std::string& text) {
    EXPECT_NE(text.find("spec.source self cannot draft while the model verifies"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find(reason), std::string::npos) << text;
  };
  for (const SpecMode mode : {SpecMode::kBranch, SpecMode::kExhaustive}) {
    config.model.spec = Self(mode);
    const auto engine = Engine::Load(config);
    ASSERT_FALSE(engine.ok());
    has(engine.status().message());
    EXPECT_NE(engine.status().message().find(SpecModeName(mode)), std::string::npos);
  }
  config.model.spec = Self(SpecMode::kAuto);
  const auto engine = Engine::Load(config);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  has((*engine)->Stats().spec.not_ahead);
  Request request = Story(0, 20);
  request.spec_mode = SpecMode::kExhaustive;
  const auto refused = (*engine)->Submit(request);
  ASSERT_FALSE(refused.ok());
  has(refused.status().message());
  EXPECT_EQ(refused.status().field(), "spec.mode");
  request.spec_mode = SpecMode::kOff;
  const auto plain = Ask(**engine, request);
  for (const SpecMode mode : {SpecMode::kAuto, SpecMode::kSync}) {
    request.spec_mode = mode;
    const auto drafted = Ask(**engine, request);
    ASSERT_TRUE(plain.ok() && drafted.ok());
    EXPECT_EQ(drafted->tokens, plain->tokens);
  }
}

TEST(SelfAhead, IsRefusedByNameWithNeuronsOnFlash) {
  const std::string bundle = testing::TempDir() + "self_ahead_" + std::to_string(::getpid());
  exec::PackNeurons(kTidepool, bundle);
  EngineConfig config = Config({});
  config.model.memory.ffn_share = 0.6;
  config.model.memory.bundle = bundle;
  ExpectRefused(config, "come from flash");
  std::remove(bundle.c_str());
}

TEST(SelfAhead, IsRefusedByNameWithAHotTier) {
  EngineConfig config = Config({});
  config.model.hot.bytes = 2 << 20;
  const placement::AlikeSides machine(config);
  ExpectRefused(config, "hot tier");
}

TEST(SelfAhead, IsRefusedByNameWhereSyncWasAskedFor) {
  const auto engine = Engine::Load(Config(Self(SpecMode::kSync)));
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  Request request = Story(0, 10);
  request.spec_mode = SpecMode::kBranch;
  const auto refused = (*engine)->Submit(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("spec.mode sync takes no"), std::string::npos)
      << refused.status().message();
}

}  // namespace
}  // namespace thermocline::spec
