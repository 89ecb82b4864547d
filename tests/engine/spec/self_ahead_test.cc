// The target that drafts for itself while it verifies: what it reads of the target's KV cache, when
// it may, and that it changes no text.
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>

#include "engine/base/log.h"
#include "engine/engine.h"
#include "engine/spec/model_source.h"
#include "engine/spec/self_source.h"
#include "engine/spec/set_up.h"
#include "tests/engine/exec/flash_models.h"

namespace thermocline::spec {
namespace {

const std::string kTidepool = SOURCE_DIR "/config/models/tidepool.gguf";
constexpr int kContext = 400;
// Sanitizers take ten times as long: a part of everything then.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kStoryTokens = 30, kCancelled = 5;
#else
constexpr int kStoryTokens = 90, kCancelled = 12;
#endif

SpecOptions Self(SpecMode mode) {
  SpecOptions spec;
  spec.mode = mode;
  spec.source = SpecSource::kSelf;
  return spec;
}

load::LoadOptions Options(kernels::KvType type, SpecMode mode = SpecMode::kBranch) {
  load::LoadOptions options;
  options.model.path = kTidepool;
  options.model.threads = 2;
  options.model.kv_type = type;
  options.model.ffn.modes = "exact";
  AskOfTarget(Self(mode), options);
  return options;
}

// The same drafts made while the target waits, on its own cache, and beside it.
class Both {
 public:
  explicit Both(kernels::KvType type) : model_(*load::LoadModel(Options(type))) {
    transformer_ = model_->MakeTransformer(64, kContext, 16);
    cache_ = *model_->MakeCache(kContext);
    // Drafts that miss a part of what the target computes, so that their keys and values show.
    constexpr float kShift = 40;
    const std::vector<ffn::FfnPolicy> policies(model_->weights->layers.size(),
                                               {.mode = FfnMode::kSign, .shift = kShift});
    waiting_ = std::make_unique<SelfSource>(SelfSource::Params{.model = *model_,
                                                               .transformer = *transformer_,
                                                               .cache = *cache_,
                                                               .policies = policies,
                                                               .width = 2});
    beside_ = *ModelSource::OfTarget(
        {.model = *model_, .cache = *cache_, .policies = policies, .threads = 2});
  }
  // The target computes all of `sequence` but its last token.
  void Read(const std::vector<int>& sequence) {
    while (cache_->length() + 1 < base::IntSize(sequence)) {
      const int at = cache_->length();
      const int count = std::min(64, base::IntSize(sequence) - 1 - at);
      ASSERT_TRUE(transformer_
                      ->Forward(std::span(sequence).subspan(static_cast<std::size_t>(at),
                                                            static_cast<std::size_t>(count)),
                                *cache_, exec::Transformer::Logits::kNone,
                                exec::Transformer::Step::kPrefill)
                      .ok());
    }
  }
  void Begin() {
    cache_->Clear();
    for (DraftSource* source : {static_cast<DraftSource*>(waiting_.get()), beside()})
      source->Begin(std::vector<int>{1}, {.temperature = 0, .logit_bias = {}});
  }
  Draft Waiting(const std::vector<int>& sequence, int tokens) {
    return Drafted(*waiting_, sequence, tokens);
  }
  Draft Beside(const std::vector<int>& sequence, int tokens) {
    return Drafted(*beside_, sequence, tokens);
  }
  DraftSource* beside() { return beside_.get(); }
  nn::KvCache& cache() { return *cache_; }

 private:
  static Draft Drafted(DraftSource& source, const std::vector<int>& sequence, int tokens) {
    Draft draft;
    EXPECT_TRUE(source
                    .Propose(
                        sequence, [&](const Draft& d) { return d.size < tokens; }, draft)
                    .ok());
    EXPECT_EQ(draft.size, tokens);
    return draft;
  }
  std::unique_ptr<load::LoadedModel> model_;
  std::unique_ptr<exec::Transformer> transformer_;
  std::unique_ptr<nn::KvCache> cache_;
  std::unique_ptr<SelfSource> waiting_;
  std::unique_ptr<ModelSource> beside_;
};

std::vector<int> Sequence(int count) {
  std::vector<int> out = {1};
  for (int i = 1; i < count; ++i) out.push_back(300 + i * 37 % 1500);
  return out;
}

void ExpectSame(const Draft& got, const Draft& expected, const std::string& where) {
  ASSERT_EQ(got.size, expected.size) << where;
  for (int i = 0; i < got.size; ++i) {
    EXPECT_EQ(got[i].token, expected[i].token) << where << ", token " << i;
    EXPECT_EQ(got[i].confidence, expected[i].confidence) << where << ", token " << i;
    ASSERT_EQ(got[i].num_alternates, expected[i].num_alternates) << where;
    for (int a = 0; a < got[i].num_alternates; ++a)
      EXPECT_EQ(got[i].alternates[a], expected[i].alternates[a]) << where << ", token " << i;
  }
}

// Its drafts are those that are made on the target's own cache, wherever a block begins, whatever
// the target writes meanwhile.
TEST(SelfAhead, DraftsAsTheWaitingTargetWould) {
  for (const auto type : {kernels::KvType::kF16, kernels::KvType::kQ8_0}) {
    Both both(type);
    for (const int length : {2, 5, 63, 64, 65, 66, 128, 129, 200}) {
      const std::string where = "behind " + std::to_string(length) + " tokens";
      const std::vector<int> sequence = Sequence(length);
      both.Begin();
      both.Read(sequence);
      both.beside()->TargetRests(sequence);
      const Draft expected = both.Waiting(sequence, 8);
      // The target goes on with other tokens, in the block that it has begun and in the next.
      std::vector<int> other = sequence;
      for (int i = 0; i < 70; ++i) other.push_back(900 + i);
      both.Read(other);
      ExpectSame(both.Beside(sequence, 8), expected, where);
      // Refused, and other tokens accepted.
      both.cache().SetLength(length - 1);
      std::vector<int> further = sequence;
      for (const int token : {700, 701, 702}) further.push_back(token);
      both.Read(further);
      both.beside()->TargetRests(further);
      ExpectSame(both.Beside(further, 8), both.Waiting(further, 8), where + " and three");
    }
  }
}

TEST(SelfAhead, DraftsEveryBranchTogetherAsAlone) {
  Both both(kernels::KvType::kF16);
  for (const int length : {3, 60, 64, 130}) {
    const std::vector<int> sequence = Sequence(length);
    both.Begin();
    both.Read(sequence);
    const Draft first = both.Waiting(sequence, 5);
    std::vector<int> drafted = sequence;
    for (int i = 0; i < 5; ++i) drafted.push_back(first[i].token);
    std::vector<Draft> drafts(11);
    std::vector<DraftSource::Path> paths;
    std::vector<Draft> expected;
    for (int i = 0; i < 11; ++i) {
      const int k = i / 2, token = i % 2 == 0 ? 640 + i : first[std::min(k, 4)].alternates[0];
      paths.push_back({.kept = length + k, .token = token, .draft = &drafts[i]});
      std::vector<int> alone(drafted.begin(), drafted.begin() + length + k);
      alone.push_back(token);
      expected.push_back(both.Waiting(alone, 6));
    }
    both.beside()->TargetRests(sequence);
    ASSERT_TRUE(
        both.beside()->ProposeEach(drafted, paths, [](int depth) { return depth < 6; }).ok());
    for (std::size_t i = 0; i < drafts.size(); ++i)
      ExpectSame(drafts[i], expected[i],
                 "path " + std::to_string(i) + " behind " + std::to_string(length));
  }
}

TEST(SelfAhead, TakesNoMoreBlocksThanItHas) {
  Both both(kernels::KvType::kF16);
  const std::vector<int> sequence = Sequence(64 + 63);  // a block that is nearly full
  both.Begin();
  both.Read(sequence);
  both.beside()->TargetRests(sequence);
  std::vector<int> drafted = sequence;
  for (int i = 0; i < kDraftTokensMax; ++i) drafted.push_back(500 + i);
  std::vector<Draft> drafts(static_cast<std::size_t>(both.beside()->paths_max()));
  std::vector<DraftSource::Path> paths;
  for (Draft& draft : drafts)
    paths.push_back({.kept = base::IntSize(drafted), .token = 600, .draft = &draft});
  ASSERT_TRUE(both.beside()->ProposeEach(drafted, paths, [](int) { return true; }).ok());
  for (const Draft& draft : drafts) EXPECT_EQ(draft.size, kProposalsMax);
  Draft one;
  ASSERT_TRUE(both.beside()
                  ->Propose(
                      drafted, [](const Draft&) { return true; }, one)
                  .ok());
  EXPECT_EQ(one.size, kProposalsMax);
}

// What follows asks whole engines.

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
    channel->WaitAndTake(update);
    all.tokens.insert(all.tokens.end(), update.tokens.begin(), update.tokens.end());
  }
  all.usage = update.usage;
  all.reason = update.reason;
  return all;
}

Request Story(double temperature, int max_tokens = kStoryTokens) {
  Request request;
  request.prompt = Sequence(90);  // what a prefix cache keeps has whole blocks
  request.prompt.push_back(static_cast<int>(400 + temperature * 10));
  request.sampling.temperature = temperature;
  request.sampling.seed = 5;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

void ExpectPlainText(Engine& engine, std::initializer_list<const char*> modes) {
  for (const double temperature : {0.0, 0.9}) {
    Request request = Story(temperature);
    request.spec_mode = "off";
    const auto plain = Ask(engine, request);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    for (const char* mode : modes) {
      request.spec_mode = mode;
      const auto drafted = Ask(engine, request);
      ASSERT_TRUE(drafted.ok()) << drafted.status().message();
      EXPECT_EQ(drafted->tokens, plain->tokens) << mode;
      EXPECT_EQ(drafted->usage.completion_tokens, request.max_tokens) << mode;
      EXPECT_GT(drafted->usage.cached_tokens, 64) << mode;  // drafts on blocks of another request's
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
    spec.self_shift = 20;  // some drafts are refused
    EngineConfig config = Config(spec);
    config.model.ffn.modes = modes;
    const auto engine = Engine::Load(config);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    ExpectPlainText(**engine, {"branch", "exhaustive", "sync", "auto"});
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
  for (const char* mode : {"branch", "exhaustive", "sync"}) {
    Request request = Story(0.9);
    request.spec_mode = mode;
    const auto answer = Ask(**engine, request);
    ASSERT_TRUE(answer.ok()) << answer.status().message();
    EXPECT_EQ(answer->usage.completion_tokens, kStoryTokens);
    EXPECT_GT(answer->usage.spec.accepted_tokens, 0);
  }
}

// Drafts are no tokens: neither counters nor audits of the networks see them, on any thread.
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
  // WarmUp's single tokens are counted, too; drafts would be ten times that.
  const std::int64_t steps = stats.spec.drafts + stats.spec.plain_steps;
  std::int64_t audited = 0;
  for (const FfnLayerStats& layer : stats.ffn) audited += layer.audited_tokens;
  EXPECT_GT(audited, 0);
  EXPECT_LE(audited, steps * static_cast<std::int64_t>(stats.ffn.size()));
  for (const FfnLayerStats& layer : stats.ffn) EXPECT_LE(layer.tokens, stats.spec.plain_steps + 8);
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
    if (i % 2 == 1) request.spec_mode = "exhaustive";
    const auto channel = *(*engine)->Submit(request);
    TokenChannel::Update update;
    for (int seen = 0; seen < 7 * i && !update.finished;
         seen += static_cast<int>(update.tokens.size()))
      channel->WaitAndTake(update);
    channel->Cancel();
    while (!update.finished) channel->WaitAndTake(update);
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
    request.spec_mode = "off";
    const auto plain = Ask(**engine, request);
    ASSERT_TRUE(drafted.ok() && plain.ok());
    EXPECT_EQ(drafted->tokens, plain->tokens) << context;
    EXPECT_EQ(drafted->usage.prompt_tokens + drafted->usage.completion_tokens, context);
  }
}

// Where the target cannot work on two threads it is refused by name, and auto drafts in turn.
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
  request.spec_mode = "exhaustive";
  const auto refused = (*engine)->Submit(request);
  ASSERT_FALSE(refused.ok());
  has(refused.status().message());
  EXPECT_EQ(refused.status().field(), "spec.mode");
  request.spec_mode = "off";
  const auto plain = Ask(**engine, request);
  for (const char* mode : {"auto", "sync"}) {
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
  config.model.hot.placement = "random";  // whatever a plan would say
  ExpectRefused(config, "hot tier");
}

TEST(SelfAhead, IsRefusedByNameWhereSyncWasAskedFor) {
  const auto engine = Engine::Load(Config(Self(SpecMode::kSync)));
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  Request request = Story(0, 10);
  request.spec_mode = "branch";
  const auto refused = (*engine)->Submit(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("spec.mode sync takes no"), std::string::npos)
      << refused.status().message();
}

// What it takes is planned; without room for it, auto leaves it out and branch says what is
// missing.
TEST(SelfAhead, TakesWhatTheMemoryBudgetLeaves) {
  base::ConfigureLog(base::LogLevel::kError, false);
  const auto load = [](SpecMode mode, std::size_t budget) {
    load::LoadOptions options = Options(kernels::KvType::kF32, mode);
    options.model.memory.budget_bytes = static_cast<std::int64_t>(budget);
    return load::LoadModel(options);
  };
  constexpr std::size_t kPlenty = std::size_t{1} << 40;
  ASSERT_TRUE(load(SpecMode::kAuto, kPlenty).ok());  // the process grows to its size
  const load::MemoryPlan all = (*load(SpecMode::kAuto, kPlenty))->memory;
  ASSERT_TRUE(all.ahead);
  const std::size_t taken = all.lines.back().bytes;
  EXPECT_EQ(all.lines.back().name, "drafts ahead by the model itself");
  const auto file = model::OpenModelFile(kTidepool);
  EXPECT_GT(taken, ModelSource::SelfKvBytes((*file)->config, kernels::KvType::kF32));
  const load::MemoryPlan sync = (*load(SpecMode::kSync, kPlenty))->memory;
  EXPECT_FALSE(sync.ahead);
  for (const load::MemoryPlan::Line& line : sync.lines) EXPECT_NE(line.name, all.lines.back().name);
  const std::size_t tight = all.total() - taken / 2;
  const auto without = load(SpecMode::kAuto, tight);
  ASSERT_TRUE(without.ok()) << without.status().message();
  EXPECT_FALSE((*without)->memory.ahead);
  const auto refused = load(SpecMode::kBranch, tight);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("drafts ahead by the model itself"), std::string::npos)
      << refused.status().message();
}

}  // namespace
}  // namespace thermocline::spec
