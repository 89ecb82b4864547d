// Drafts by the target itself, ahead: the source's view of the target's KV cache, and the memory
// planned for it.
#include <gtest/gtest.h>

#include "engine/base/log.h"
#include "engine/model/open/open_model.h"
#include "engine/spec/model_source.h"
#include "engine/spec/self_source.h"
#include "engine/spec/set_up.h"
#include "tests/engine/spec/self_ahead.h"

namespace thermocline::spec {
namespace {

constexpr int kContext = 400;
// With this rule proposals carry their distributions, which show every bit of the KV cache.
constexpr Acceptance kRule = Acceptance::kRejection;

load::LoadOptions Options(kernels::KvType type, SpecMode mode = SpecMode::kBranch) {
  load::LoadOptions options;
  options.model.path = kTidepool;
  options.model.threads = 2;
  options.model.kv_type = type;
  options.model.ffn.modes = "exact";
  AddDraftNeeds(Self(mode), options);
  return options;
}

// The same drafts made on the target's own cache while it waits, and beside it.
class Both {
 public:
  explicit Both(kernels::KvType type) : model_(*load::LoadModel(Options(type))) {
    transformer_ = model_->MakeTransformer(64, kContext, 16);
    cache_ = *model_->MakeCache(kContext);
    // Drafts that skip part of the target's work, so that their KV cache entries differ.
    constexpr float kShift = 120;
    const std::vector<ffn::FfnPolicy> policies(model_->weights->layers.size(),
                                               {.mode = FfnMode::kSign, .shift = kShift});
    waiting_ = std::make_unique<SelfSource>(SelfSource::Params{.model = *model_,
                                                               .transformer = *transformer_,
                                                               .cache = *cache_,
                                                               .policies = policies,
                                                               .width = 2,
                                                               .acceptance = kRule});
    beside_ = *ModelSource::OfTarget({.model = *model_,
                                      .cache = *cache_,
                                      .policies = policies,
                                      .threads = 2,
                                      .acceptance = kRule});
  }
  // The target computes all of `sequence` except its last token.
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
      source->Begin(std::vector<int>{1}, {.seed = 7, .logit_bias = {}});
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

void ExpectSame(const Draft& got, const Draft& expected, const std::string& where) {
  ASSERT_EQ(got.size, expected.size) << where;
  for (int i = 0; i < got.size; ++i) {
    EXPECT_EQ(got[i].token, expected[i].token) << where << ", token " << i;
    EXPECT_EQ(got[i].distribution.tokens, expected[i].distribution.tokens) << where << ", " << i;
    EXPECT_EQ(got[i].distribution.weights, expected[i].distribution.weights) << where << ", " << i;
    EXPECT_GT(got[i].distribution.size(), 1U) << where;
    EXPECT_EQ(got[i].confidence, expected[i].confidence) << where << ", token " << i;
    ASSERT_EQ(got[i].num_alternates, expected[i].num_alternates) << where;
    for (int a = 0; a < got[i].num_alternates; ++a)
      EXPECT_EQ(got[i].alternates[a], expected[i].alternates[a]) << where << ", token " << i;
  }
}

// The drafts are equal to those made on the target's own cache, wherever a block begins and
// whatever the target writes meanwhile.
TEST(SelfAheadSource, DraftsAsTheWaitingTargetWould) {
  for (const auto type : {kernels::KvType::kF16, kernels::KvType::kQ8_0}) {
    Both both(type);
    for (const int length : {2, 5, 63, 64, 65, 66, 128, 129, 200}) {
      const std::string where = "behind " + std::to_string(length) + " tokens";
      const std::vector<int> sequence = Sequence(length);
      both.Begin();
      both.Read(sequence);
      both.beside()->OnTargetIdle(sequence);
      const Draft expected = both.Waiting(sequence, 8);
      // The target continues with other tokens, in its current block and in the next.
      std::vector<int> other = sequence;
      for (int i = 0; i < 70; ++i) other.push_back(900 + i);
      both.Read(other);
      ExpectSame(both.Beside(sequence, 8), expected, where);
      // A token is rejected, and other tokens are accepted.
      both.cache().SetLength(length - 1);
      std::vector<int> further = sequence;
      for (const int token : {700, 701, 702}) further.push_back(token);
      both.Read(further);
      both.beside()->OnTargetIdle(further);
      ExpectSame(both.Beside(further, 8), both.Waiting(further, 8), where + " and three");
    }
  }
}

TEST(SelfAheadSource, DraftsEveryBranchTogetherAsAlone) {
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
    both.beside()->OnTargetIdle(sequence);
    ASSERT_TRUE(
        both.beside()->ProposeEach(drafted, paths, [](int depth) { return depth < 6; }).ok());
    for (std::size_t i = 0; i < drafts.size(); ++i)
      ExpectSame(drafts[i], expected[i],
                 "path " + std::to_string(i) + " behind " + std::to_string(length));
  }
}

TEST(SelfAheadSource, TakesNoMoreBlocksThanItHas) {
  Both both(kernels::KvType::kF16);
  const std::vector<int> sequence = Sequence(64 + 63);  // a block that is nearly full
  both.Begin();
  both.Read(sequence);
  both.beside()->OnTargetIdle(sequence);
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

// Its memory is planned; without room for it, auto leaves it out and branch reports the missing
// memory.
TEST(SelfAheadSource, TakesWhatTheMemoryBudgetLeaves) {
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
