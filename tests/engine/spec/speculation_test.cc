// The real engine with the Tidepool pair: every way of drafting gives plain decoding's text.
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <numeric>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/chat.h"
#include "engine/engine.h"
#include "engine/spec/controller.h"
#include "engine/text/dry_breakers.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/exec/flash_models.h"
#include "tests/engine/placement/alike_sides.h"

namespace thermocline {
namespace {

// Sanitizers are ten times as slow, so they run a part of the test.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kRequests = 5, kTexts = 24, kConfigs = 2;
#else
constexpr int kRequests = 12, kTexts = 240, kConfigs = 5;
#endif

EngineConfig Config(const SpecOptions& spec) {
  base::ConfigureLog(base::LogLevel::kError, false);
  EngineConfig config;
  config.model.path = "tidepool";
  config.model.threads = 2;
  config.model.spec = spec;
  return config;
}

SpecOptions Pair(SpecMode mode) {
  SpecOptions spec;
  spec.mode = mode;
  spec.draft = "tidepool-draft";
  spec.tokens_max = 15;
  return spec;
}

std::unique_ptr<Engine> Load(const EngineConfig& config) {
  auto engine = Engine::Load(config);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}

struct Answer {
  std::vector<int> tokens;
  std::string text;
  FinishReason reason;
  Usage usage;
};

Answer Ask(Engine& engine, const Request& request) {
  const auto channel = engine.Submit(request);
  EXPECT_TRUE(channel.ok()) << channel.status().message();
  Answer out{};
  TokenChannel::Update update;
  while (!update.finished) {
    (*channel)->WaitForUpdate(update);
    out.tokens.insert(out.tokens.end(), update.tokens.begin(), update.tokens.end());
    out.text += update.text;
  }
  out.reason = update.reason;
  out.usage = update.usage;
  return out;
}

// Stories, chats and noise.
std::vector<Request> Requests() {
  std::vector<Request> out;
  std::uint32_t noise = 12345;
  for (int i = 0; i < kRequests; ++i) {
    Request request;
    request.sampling.temperature = 0;
    request.max_tokens = 40 + 5 * i;
    request.prompt = {1};
    for (int j = 0; j < 3 * i; ++j) {
      noise = noise * 1664525 + 1013904223;
      request.prompt.push_back(static_cast<int>(300 + (noise >> 12) % 1700));
    }
    request.ignore_eos = i % 3 == 0;
    if (i % 4 == 1) request.stop = {" the", "."};
    if (i % 2 == 1) {
      request.sampling.temperature = 0.7 + 0.1 * i;
      request.sampling.seed = static_cast<std::uint64_t>(i);
      request.sampling.top_p = i % 3 == 0 ? 1.0 : 0.9;
      request.sampling.top_k = i % 5 == 0 ? 20 : 0;
      request.sampling.repetition_penalty = i % 7 == 0 ? 1.2 : 1.0;
      request.sampling.frequency_penalty = i % 3 == 1 ? 0.5 : 0;
      request.sampling.logit_bias = {{310, -100.0F}, {400 + i, 3.0F}};
    }
    out.push_back(request);
  }
  out.back().max_tokens = 0;  // to the context's end
  out.back().ignore_eos = true;
  return out;
}

struct Drafting {
  SpecMode mode;
  int tokens;
};

// Every way of drafting gives each request's plain answer.
void ExpectPlainText(Engine& engine, const std::vector<Request>& requests,
                     const std::vector<Drafting>& ways) {
  for (const Request& request : requests) {
    Request plain = request;
    plain.spec_mode = SpecMode::kOff;
    const Answer expected = Ask(engine, plain);
    for (const Drafting& way : ways) {
      Request drafted = request;
      drafted.spec_mode = way.mode;
      drafted.spec_tokens = way.tokens;
      const Answer got = Ask(engine, drafted);
      EXPECT_EQ(got.tokens, expected.tokens) << SpecModeName(way.mode) << " " << way.tokens;
      EXPECT_EQ(got.text, expected.text);
      EXPECT_EQ(got.reason, expected.reason);
      EXPECT_EQ(got.usage.completion_tokens, expected.usage.completion_tokens);
    }
  }
}

TEST(Speculation, EveryModeGivesPlainText) {
  const auto engine = Load(Config(Pair(SpecMode::kAuto)));
  std::vector<Drafting> ways;
  for (const SpecMode mode :
       {SpecMode::kSync, SpecMode::kBranch, SpecMode::kExhaustive, SpecMode::kAuto}) {
    for (const int tokens : {1, 15}) ways.push_back({mode, tokens});
  }
  ExpectPlainText(*engine, Requests(), ways);
  const SpecStats stats = engine->Stats().spec;
  // The length of drafts depends on timing; the share of accepted tokens does not.
  EXPECT_GT(stats.drafts, 100);
  EXPECT_GT(5 * stats.accepted_tokens, stats.draft_tokens);
  std::printf("%lld drafts, %lld of %lld tokens accepted\n", static_cast<long long>(stats.drafts),
              static_cast<long long>(stats.accepted_tokens),
              static_cast<long long>(stats.draft_tokens));
}

// Samplers that use the earlier text see the drafted part, too, and forget rejected tokens.
TEST(Speculation, SamplingThatLooksBackGivesPlainText) {
  SpecOptions pair = Pair(SpecMode::kAuto);
  pair.fixed = true;  // on a busy machine drafts may not be worth their time
  const auto engine = Load(Config(pair));
  const text::Tokenizer& tokenizer = engine->tokenizer();
  int differ = 0;
  for (Request request : Requests()) {
    const Answer without = Ask(*engine, request);
    SamplingParams& s = request.sampling;
    s.typical_p = 0.8;
    s.dry_multiplier = 1.5;
    s.dry_allowed_length = 1;
    s.dry_breakers = text::DryBreakerTokens(tokenizer, text::kDryBreakersDefault);
    s.min_tokens = 30;
    for (int token = 0; token < tokenizer.vocabulary().size(); ++token)
      if (tokenizer.IsStop(token)) s.end_tokens.push_back(token);
    request.spec_mode = SpecMode::kOff;
    const Answer expected = Ask(*engine, request);
    differ += expected.tokens != without.tokens ? 1 : 0;
    for (const SpecMode mode : {SpecMode::kSync, SpecMode::kBranch}) {
      request.spec_mode = mode;
      request.spec_tokens = 8;
      const Answer got = Ask(*engine, request);
      EXPECT_EQ(got.tokens, expected.tokens) << SpecModeName(mode);
      EXPECT_EQ(got.text, expected.text) << SpecModeName(mode);
    }
  }
  EXPECT_GT(differ, kRequests / 2);
  EXPECT_GT(engine->Stats().spec.accepted_tokens, 0);
}

TEST(Speculation, DraftsFromTheTextGivePlainText) {
  SpecOptions spec;
  spec.mode = SpecMode::kSync;
  const auto engine = Load(Config(spec));
  ExpectPlainText(*engine, Requests(), {{SpecMode::kSync, 8}, {SpecMode::kAuto, 15}});
}

// Prose and questions, cut at arbitrary places.
std::vector<Request> Texts(const Engine& engine, int count) {
  std::vector<Request> out;
  for (const char* name : {"gsm8k_test.jsonl", "wizard_of_oz.txt", "wikitext2_test.txt"}) {
    const auto text = base::ReadFileToString(std::string(SOURCE_DIR "/tests/data/") + name);
    EXPECT_TRUE(text.ok()) << text.status().message();
    const int share = count / 3;
    for (int i = 0; i < share; ++i) {
      const std::size_t begin =
          text->size() / static_cast<std::size_t>(share + 1) * static_cast<std::size_t>(i);
      Request request;
      request.prompt = engine.tokenizer().Encode(
          std::string_view(*text).substr(begin, 40 + static_cast<std::size_t>(i) % 200),
          {.add_bos = true});
      request.sampling.temperature = i % 3 == 2 ? 0.9 : 0;
      request.sampling.seed = static_cast<std::uint64_t>(i);
      request.max_tokens = 24;
      request.ignore_eos = i % 2 == 0;
      out.push_back(request);
    }
  }
  return out;
}

TEST(Speculation, HundredsOfTextsStayAsTheyAre) {
  const auto engine = Load(Config(Pair(SpecMode::kAuto)));
  int differ = 0, turn = 0;
  for (const Request& request : Texts(*engine, kTexts)) {
    Request plain = request, drafted = request;
    plain.spec_mode = SpecMode::kOff;
    static constexpr SpecMode kModes[] = {SpecMode::kSync, SpecMode::kBranch, SpecMode::kExhaustive,
                                          SpecMode::kAuto};
    drafted.spec_mode = kModes[turn % 4];
    drafted.spec_tokens = 1 + turn++ % 15;
    differ += Ask(*engine, plain).tokens != Ask(*engine, drafted).tokens ? 1 : 0;
  }
  EXPECT_EQ(turn, kTexts);
  EXPECT_EQ(differ, 0);
}

// Every placement of neurons and every mode.
TEST(Speculation, EveryPlacementAndModeGivesItsOwnPlainText) {
  std::vector<EngineConfig> configs(5, Config(Pair(SpecMode::kAuto)));
  configs[0].model.threads = 1;
  configs[1].model.ffn.modes = "dense";
  configs[2].model.ffn.modes = "sign";
  configs[3].model.hot.bytes = 2 << 20;
  const placement::AlikeSides machine(configs[3]);
  const std::string bundle = testing::TempDir() + "speculation_" + std::to_string(::getpid());
  exec::PackNeurons(SOURCE_DIR "/config/models/tidepool.gguf", bundle);
  configs[4].model.memory.ffn_share = 0.6;
  configs[4].model.memory.bundle = bundle;
  std::swap(configs[1], configs[4]);  // flash first
  configs.resize(kConfigs);
  // One sampled, one greedy, with and without a stop string: the configurations differ in the
  // placement of neurons, not in requests.
  std::vector<Request> requests = Requests();
  requests.resize(4);
  for (const EngineConfig& config : configs) {
    const auto engine = Load(config);
    ExpectPlainText(*engine, requests, {{SpecMode::kSync, 6}, {SpecMode::kBranch, 6}});
  }
  std::remove(bundle.c_str());
}

TEST(Speculation, CancellingWhileBothSidesWorkLeavesNothingBehind) {
  const auto engine = Load(Config(Pair(SpecMode::kBranch)));
  Request endless;
  endless.prompt = {1};
  endless.ignore_eos = true;
  endless.sampling.temperature = 0;
  endless.max_tokens = 60;
  const Answer before = Ask(*engine, endless);
  for (int i = 0; i < 30; ++i) {
    Request request = endless;
    request.max_tokens = 0;
    const auto channel = *engine->Submit(request);
    TokenChannel::Update update;
    for (int seen = 0; seen < i && !update.finished; seen += static_cast<int>(update.tokens.size()))
      channel->WaitForUpdate(update);
    channel->Cancel();
    while (!update.finished) channel->WaitForUpdate(update);
    EXPECT_TRUE(update.reason == FinishReason::kCancelled ||
                update.reason == FinishReason::kLength);
  }
  EXPECT_EQ(Ask(*engine, endless).tokens, before.tokens);
}

TEST(Speculation, WhatCannotDraftIsRefusedByName) {
  const auto refused = [](const std::function<void(EngineConfig&)>& change) {
    EngineConfig config = Config(Pair(SpecMode::kSync));
    change(config);
    const auto engine = Engine::Load(config);
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? "" : engine.status().message();
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(refused([](EngineConfig& c) { c.model.spec.draft = "no-such-model"; }), "the draft model");
  has(refused([](EngineConfig& c) { c.model.spec.tokens_max = 21; }), "at most 20");
  has(refused([](EngineConfig& c) { c.model.spec.source = SpecSource::kSelf; }), "not used by");
}

TEST(Speculation, DraftsEndWithTheContextHoweverSmall) {
  for (const int context : {2, 3, 5, 9, 17}) {
    EngineConfig config = Config(Pair(SpecMode::kBranch));
    config.model.context_length = context;
    const auto engine = Load(config);
    Request request;
    request.prompt = {1};
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    const Answer drafted = Ask(*engine, request);
    EXPECT_EQ(drafted.usage.prompt_tokens + drafted.usage.completion_tokens, context);
    request.spec_mode = SpecMode::kOff;
    EXPECT_EQ(drafted.tokens, Ask(*engine, request).tokens);
  }
}

TEST(Speculation, ARequestDraftsNoMoreThanTheOperatorAllows) {
  SpecOptions spec = Pair(SpecMode::kSync);
  spec.tokens_max = 2;
  spec.fixed = true;
  const auto engine = Load(Config(spec));
  Request request;
  request.prompt = {1};
  request.sampling.temperature = 0;
  request.max_tokens = 40;
  request.ignore_eos = true;
  request.spec_tokens = 15;
  const Usage usage = Ask(*engine, request).usage;
  EXPECT_GT(usage.spec.drafts, 0);
  EXPECT_LE(usage.spec.draft_tokens, 2 * usage.spec.drafts);
}

// A correct proposal behind the verified ones must not count as rejected.
TEST(Speculation, WhatIsRightBehindADraftIsLearnedAsRight) {
  spec::Controller controller({.fixed = true});
  controller.Begin({.mode = SpecMode::kSync, .tokens_max = 2, .greedy = true, .extra = true});
  spec::Draft draft;
  draft.size = 3;
  for (int i = 0; i < 3; ++i) draft[i].confidence = 5;
  controller.Next(8);
  for (int i = 0; i < 50; ++i) {
    controller.Add(draft, {.mode = SpecMode::kSync,
                           .drafted = 3,
                           .verified = 2,
                           .accepted = 2,
                           .judged = 3,
                           .next_right = true,
                           .rank = 1,
                           .verify_s = 0.01,
                           .total_s = 0.01});
  }
  std::vector<spec::Branch> branches;
  controller.Branches(draft, 2, branches);
  ASSERT_FALSE(branches.empty());
  EXPECT_EQ(branches[0].k, 2);
  EXPECT_GT(branches[0].probability, 0.85);
}

TEST(Speculation, WithoutTheDraftOnlyIfItIsNotRequired) {
  SpecOptions spec = Pair(SpecMode::kSync);
  spec.draft = "/no/such/model.gguf";
  spec.required = false;
  const auto engine = Load(Config(spec));
  EXPECT_NE(engine->Stats().spec.fallback.find("/no/such/model.gguf"), std::string::npos);
  EXPECT_EQ(engine->Stats().spec.source, "ngram");
  ExpectPlainText(*engine, Requests(), {{SpecMode::kSync, 4}});
}

TEST(Speculation, TheTargetDraftsForItself) {
  SpecOptions spec;
  spec.mode = SpecMode::kSync;
  spec.source = SpecSource::kSelf;
  const auto engine = Load(Config(spec));
  ExpectPlainText(*engine, Requests(), {{SpecMode::kSync, 4}});
}

TEST(Speculation, TheTargetDraftsForItselfWhileItVerifies) {
  SpecOptions spec;
  spec.mode = SpecMode::kAuto;
  spec.source = SpecSource::kSelf;
  const auto engine = Load(Config(spec));
  ExpectPlainText(*engine, Requests(),
                  {{SpecMode::kBranch, 1},
                   {SpecMode::kBranch, 15},
                   {SpecMode::kExhaustive, 4},
                   {SpecMode::kAuto, 15}});
}

TEST(Speculation, TheTextItselfIsDraftedAhead) {
  SpecOptions spec;
  spec.mode = SpecMode::kBranch;
  spec.source = SpecSource::kNgram;
  spec.fixed = true;
  const auto engine = Load(Config(spec));
  ExpectPlainText(*engine, Requests(),
                  {{SpecMode::kBranch, 4}, {SpecMode::kExhaustive, 4}, {SpecMode::kSync, 4}});
  const SpecStats stats = engine->Stats().spec;
  const auto sum = [](const auto& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  };
  EXPECT_GT(sum(stats.branch_hits) + sum(stats.branch_misses), 0);
}

}  // namespace
}  // namespace thermocline
