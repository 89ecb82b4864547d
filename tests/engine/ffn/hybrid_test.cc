// A network that is split between two sides gives the result of one side.
#include <array>
#include <cmath>

#include "engine/ffn/cpu_partition.h"
#include "engine/ffn/hybrid_ffn.h"
#include "tests/engine/exec/ffn_models.h"
#include "tests/engine/exec/flash_models.h"

namespace thermocline::ffn {
namespace {

using kernels::DType;

class Hybrid : public exec::FfnModels {
 protected:
  // Every `every`-th neuron, in another order for each layer; all of layer 0 if `whole`, none of
  // layer 1.
  static NeuronIds SomeNeurons(const load::LoadedModel& model, int every, bool whole = false) {
    NeuronIds ids(model.weights->layers.size());
    for (int l = 0; l < static_cast<int>(ids.size()); ++l) {
      for (int i = 0; i < model.config.intermediate_size; ++i) {
        const bool mine = l == 0 && whole ? true : l == 1 ? false : (i * 7 + l) % every == 0;
        if (mine) ids[static_cast<std::size_t>(l)].push_back(i);
      }
    }
    return ids;
  }

  static std::unique_ptr<load::LoadedModel> Split(const exec::How& how, int every,
                                                  int hot_threads = 1) {
    auto model = exec::Load(how);
    const Status split = model->SplitNeurons(SomeNeurons(*model, every, every == 3), hot_threads);
    EXPECT_TRUE(split.ok()) << split.message();
    return model;
  }
};

TEST_F(Hybrid, HasTheBitsOfOneSideInEveryMode) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_0}) {
    const std::string path = Convert(exec::kTidepoolFolder, {.type = type});
    WriteRandomSideCar(path, false, 24, 0.01F);
    for (const std::string modes : {"exact", "sign", "lowrank", "threshold"}) {
      const auto one = exec::Load({.path = path, .modes = modes});
      const auto want = exec::LogitsOf(*one, 24, 1),
                 prefilled = exec::LogitsOf(*one, 24, 24, exec::Transformer::Step::kPrefill),
                 verified = exec::LogitsOf(*one, 24, 12);
      for (const int every : {2, 3, 10}) {
        for (const int threads : {1, 2}) {
          const auto both =
              Split({.path = path, .modes = modes, .threads = threads}, every, 3 - threads);
          EXPECT_EQ(exec::LogitsOf(*both, 24, 1), want) << modes << " every " << every;
          EXPECT_EQ(exec::LogitsOf(*both, 24, 24, exec::Transformer::Step::kPrefill), prefilled)
              << modes << " every " << every;
          EXPECT_EQ(exec::LogitsOf(*both, 24, 12), verified) << modes << " every " << every;
        }
      }
    }
  }
}

// Runs one layer's network of a split model.
std::vector<float> RunBoth(const load::LoadedModel& model, int layer, const exec::FfnInput& input) {
  const int tokens = input.get().tokens;
  nn::Multiplier multiplier(*model.ops, *model.pool, nn::PanelScratchBytes(*model.weights));
  SparseFfn cold({.config = model.config,
                  .weights = *model.weights,
                  .predictors = nullptr,
                  .ops = *model.ops,
                  .pool = *model.pool,
                  .multiplier = multiplier,
                  .tokens_max = tokens,
                  .members = &model.split->cold()});
  cold.policy(layer).mode = FfnMode::kExact;
  CpuPartition hot({.config = model.config,
                    .weights = model.split->hot_weights(),
                    .predictors = nullptr,
                    .members = model.split->hot(),
                    .ops = *model.ops,
                    .threads = 1,
                    .tokens_max = tokens});
  HybridFfn both({.config = model.config,
                  .weights = *model.weights,
                  .ops = *model.ops,
                  .pool = *model.pool,
                  .cold = cold,
                  .hot = hot,
                  .tokens_max = tokens});
  std::vector<float> out(static_cast<std::size_t>(tokens * model.config.hidden_size));
  EXPECT_TRUE(both.Run(layer, input.get(), false, out.data()).ok());
  return out;
}

TEST_F(Hybrid, IsNearWhereSidesAddFloats) {
  for (const DType type : {DType::kQ4_1, DType::kF16, DType::kF32}) {
    const std::string path = Convert(exec::kTidepoolFolder, {.type = type});
    const auto one = exec::Load({.path = path, .modes = "exact"});
    const auto transformer = one->MakeTransformer(11, 16);
    const auto split = Split({.path = path, .modes = "exact"}, 3);
    const exec::FfnInput input(*one, 11, 5);
    for (int layer = 0; layer < 3; ++layer) {
      const auto want = exec::RunFfn(*one, *transformer, layer, input),
                 got = RunBoth(*split, layer, input);
      float largest = 0;
      for (const float y : want) largest = std::max(largest, std::fabs(y));
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 2e-6F * largest) << kernels::Traits(type).name << " " << i;
      EXPECT_EQ(got, RunBoth(*split, layer, input)) << "the same twice";
    }
  }
}

TEST_F(Hybrid, CountsWhatEachSideComputes) {
  const auto both = Split({.path = exec::kTidepool, .modes = "exact"}, 2);
  const auto transformer = both->MakeTransformer(1, 16);
  const auto cache = *both->MakeCache(16);
  for (const int token : exec::SomeTokens(16, both->config.vocab_size))
    ASSERT_TRUE(
        transformer->Forward(std::span(&token, 1), *cache, exec::Transformer::Logits::kLast).ok());
  const HybridCounters c = transformer->hybrid_counters();
  EXPECT_EQ(c.hot.steps, 16 * 5);  // layer 1 has no hot neurons
  EXPECT_EQ(c.cold.steps, 16 * 5);
  EXPECT_GT(c.hot.active, 0);
  EXPECT_GT(c.cold.active, 0);
  EXPECT_GT(c.hot.busy_s, 0);
  EXPECT_GE(c.total_s, c.cold.busy_s);
}

TEST_F(Hybrid, HasTheSameBitsWithTheColdSidesNeuronsOnFlash) {
  const std::string bundle = folder_ + "/tidepool.tcb";
  exec::PackNeurons(exec::kTidepool, bundle);
  for (const std::string modes : {"exact", "sign"}) {
    const auto want = exec::LogitsOf(*exec::Load({.path = exec::kTidepool, .modes = modes}), 24, 1);
    for (const double share : {0.75, 0.4}) {  // with all gate rows in memory, and without
      load::LoadOptions options;
      options.model.path = exec::kTidepool;
      options.model.threads = 2;
      options.model.kv_type = kernels::KvType::kF32;
      options.model.ffn.modes = modes;
      options.model.memory = {.ffn_share = share, .bundle = bundle};
      auto model = load::LoadModel(options);
      ASSERT_TRUE(model.ok()) << model.status().message();
      ASSERT_EQ((*model)->memory.tier, load::MemoryPlan::Tier::kNeurons);
      const Status split = (*model)->SplitNeurons(SomeNeurons(**model, 3), 1);
      ASSERT_TRUE(split.ok()) << split.message();
      EXPECT_EQ(exec::LogitsOf(**model, 24, 1), want) << modes << " " << share;
      EXPECT_GT((*model)->flash_counters().reads, 0);
    }
  }
}

TEST_F(Hybrid, NeedsDownRows) {
  const std::string path = Convert(exec::kTidepoolFolder, {.down = model::DownLayout::kColumns});
  auto model = exec::Load({.path = path, .modes = "dense"});
  const Status split = model->SplitNeurons(SomeNeurons(*model, 2), 1);
  EXPECT_EQ(split.code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace thermocline::ffn
