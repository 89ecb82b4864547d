// Candidates are returned once each, from memory or late, with the rows that the store gives.
#include "engine/ffn/flash_neurons.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "engine/base/log.h"
#include "engine/offline/bundle_writer.h"
#include "tests/engine/ffn/small_network.h"

namespace thermocline::ffn {
namespace {

constexpr int kLayers = 2;
const std::string kHash(32, 's');

// A store of a small network's neurons.
class FlashNeuronsTest : public testing::Test {
 protected:
  void SetUp() override {
    base::ConfigureLog(base::LogLevel::kError, false);
    constexpr std::size_t row = kHidden * sizeof(float);
    store::BundleIndex plan{.model_hash = kHash,
                            .hidden_size = kHidden,
                            .intermediate_size = kNeurons,
                            .num_hidden_layers = kLayers};
    plan.layout = {.gate_bytes = row,
                   .up_bytes = row,
                   .down_bytes = row,
                   .neurons_per_group = 5,
                   .group_stride = 4096};
    plan.layers.resize(kLayers);
    for (auto& layer : plan.layers) {
      layer.position.resize(kNeurons);
      std::iota(layer.position.begin(), layer.position.end(), 0);
    }
    auto writer = offline::BundleWriter::Open(path_, plan);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (const model::LayerWeights& l : network_.weights.layers)
      ASSERT_TRUE((*writer)->AddNeurons({l.gate.rows(), l.up.rows(), l.down_rows}).ok());
    ASSERT_TRUE((*writer)->Commit().ok());
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::unique_ptr<store::NeuronStore> Open(std::size_t slots, bool deciding_held) const {
    auto reader = store::OpenBlockReader(path_, {.depth = 8, .allow_io_uring = false});
    EXPECT_TRUE(reader.ok()) << reader.status().message();
    auto index = store::ReadBundleIndex(path_, {kHash, kHidden, kNeurons, kLayers});
    EXPECT_TRUE(index.ok()) << index.status().message();
    auto store = store::NeuronStore::Create(
        *index, *std::move(reader), {.queue = {.rest_only = deciding_held}, .slots = slots});
    EXPECT_TRUE(store.ok()) << store.status().message();
    return *std::move(store);
  }

  FlashNeurons Make(store::NeuronStore& store, bool deciding_held) {
    return FlashNeurons({.context = network_.context(),
                         .store = store,
                         .deciding_held = deciding_held,
                         .read_ahead = true,
                         .tokens_max = kTokens});
  }

  // The test's gate and mask of a neuron.
  static float Gate(int id, int token) { return static_cast<float>(id + 5000 * (token + 1)); }
  static std::uint16_t Mask(int id) { return static_cast<std::uint16_t>(1 + id % 3); }

  // Puts the ids, with gates if these are held.
  void PutAll(FlashNeurons& flash, const std::set<int>& ids) {
    for (int r = 0; r < ranges_.NumRanges(0); ++r) {
      const NeuronRange range = ranges_.Of(0, r);
      GatedNeurons mine(kTokens);
      for (int i = 0; i < range.count; ++i) {
        const int id = range.id(i);
        if (!ids.contains(id)) continue;
        for (int t = 0; t < kTokens; ++t)
          mine.gates[static_cast<std::size_t>(t * kRange + mine.list.count)] = Gate(id, t);
        mine.list.Add(id, Mask(id));
      }
      flash.deciding_held() ? flash.Put(range, mine, kTokens) : flash.Put(range, mine.list);
    }
  }

  // Takes all ids, and checks their masks, gates and rows.
  std::set<int> TakeAll(FlashNeurons& flash, int layer, bool late) {
    std::set<int> out;
    for (int r = 0; r < ranges_.NumRanges(0); ++r) {
      const GatedNeurons& mine = flash.Candidates(ranges_.Of(0, r), late, kTokens, 1);
      for (int k = 0; k < mine.list.count; ++k) {
        const int id = mine.list.ids[static_cast<std::size_t>(k)];
        EXPECT_TRUE(out.insert(id).second) << id << " twice";
        EXPECT_EQ(id, *out.rbegin()) << "ascending";
        EXPECT_EQ(mine.list.masks[static_cast<std::size_t>(k)], Mask(id));
        for (int t = 0; flash.deciding_held() && t < kTokens; ++t)
          EXPECT_EQ(mine.gates[static_cast<std::size_t>(t * kRange + k)], Gate(id, t)) << id;
        ExpectRows(flash.store(), layer, id);
      }
      EXPECT_FALSE(mine.list.whole);
    }
    return out;
  }

  void ExpectRows(const store::NeuronStore& store, int layer, int id) const {
    const std::uint8_t* at = store.where(layer)[id];
    ASSERT_NE(at, nullptr) << id;
    const SmallNetwork::Layer& want = network_.layers[static_cast<std::size_t>(layer)];
    const auto* up = reinterpret_cast<const float*>(at + store.up_ahead());
    const auto* down = reinterpret_cast<const float*>(at + store.down_ahead());
    for (int c = 0; c < kHidden; ++c) {
      ASSERT_EQ(up[c], want.up.at(id, c)) << id;
      ASSERT_EQ(down[c], want.down.at(id, c)) << id;
    }
  }

  static std::set<int> Every(int n, int first = 0) {
    std::set<int> out;
    for (int i = first; i < kNeurons; i += n) out.insert(i);
    return out;
  }
  static std::set<int> Held(const store::NeuronStore& store, int layer, const std::set<int>& ids) {
    std::set<int> out;
    for (const int id : ids)
      if (store.Has(layer, id)) out.insert(id);
    return out;
  }

  static constexpr int kTokens = 2;
  const std::string path_ = StrCat(testing::TempDir(), "flash-neurons-", ::getpid(), ".tcb");
  SmallNetwork network_{{.layers = kLayers}};
  const NeuronRanges ranges_{kNeurons, nullptr};
};

TEST_F(FlashNeuronsTest, GivesEachCandidateOnceHereOrLate) {
  for (const bool deciding_held : {true, false}) {
    const auto store = Open(300, deciding_held);
    FlashNeurons flash = Make(*store, deciding_held);
    std::size_t held_neurons = 0;
    for (const int first : {0, 0, 1}) {
      for (int layer = 0; layer < kLayers; ++layer) {
        const std::set<int> wanted = Every(4 + layer, first);
        const std::set<int> held = Held(*store, layer, wanted);
        held_neurons += held.size();
        PutAll(flash, wanted);
        flash.Request(layer, false);
        EXPECT_EQ(flash.reading(), held.size() < wanted.size());
        EXPECT_EQ(TakeAll(flash, layer, false), held);
        ASSERT_TRUE(flash.Await().ok());
        std::set<int> late = TakeAll(flash, layer, true);
        EXPECT_EQ(late.size(), wanted.size() - held.size());
        late.insert(held.begin(), held.end());
        EXPECT_EQ(late, wanted);
        store->EndLayer(layer);
      }
      store->EndStep(kTokens);
    }
    EXPECT_GT(held_neurons, 0U);  // otherwise the test covers no held neurons
  }
}

TEST_F(FlashNeuronsTest, LeavesOutWhatIsNotInMemory) {
  const auto store = Open(300, false);
  FlashNeurons flash = Make(*store, false);
  PutAll(flash, Every(3));
  flash.Request(0, false);
  ASSERT_TRUE(flash.Await().ok());
  store->EndLayer(0);
  store->EndStep(kTokens);
  const std::set<int> wanted = Every(2), held = Held(*store, 0, wanted);
  ASSERT_FALSE(held.empty());
  ASSERT_LT(held.size(), wanted.size());
  const std::int64_t reads = store->counters().reads;
  PutAll(flash, wanted);
  flash.Request(0, /*resident_only=*/true);
  EXPECT_FALSE(flash.reading());
  EXPECT_EQ(TakeAll(flash, 0, false), held);
  EXPECT_TRUE(TakeAll(flash, 0, true).empty());
  store->EndLayer(0);
  store->EndStep(kTokens);
  EXPECT_EQ(store->counters().reads, reads);
}

TEST_F(FlashNeuronsTest, ReadsWholeLayers) {
  const auto store = Open(100, false);
  FlashNeurons flash = Make(*store, false);
  ASSERT_TRUE(flash.ReadAll(0, 1, /*next_too=*/true).ok());
  for (int id = 0; id < kNeurons; ++id) ExpectRows(*store, 0, id);
  EXPECT_EQ(store->counters().needed, kNeurons);
  store->EndLayer(0);
  // Prefill tokens are not counted.
  ASSERT_TRUE(flash.ReadAll(1, kSparseTokensMax + 1, false).ok());
  for (int id = 0; id < kNeurons; ++id) ExpectRows(*store, 1, id);
  EXPECT_EQ(store->counters().needed, kNeurons);
  store->EndLayer(1);
}

TEST_F(FlashNeuronsTest, NeedsAllWhereDecidingRowsComeAlong) {
  const auto store = Open(100, false);
  for (const bool held : {true, false}) {
    const FlashNeurons flash = Make(*store, held);
    EXPECT_EQ(flash.NeedsAll(FfnMode::kExact), !held);
    EXPECT_EQ(flash.NeedsAll(FfnMode::kThreshold), !held);
    EXPECT_FALSE(flash.NeedsAll(FfnMode::kSign));
    EXPECT_FALSE(flash.NeedsAll(FfnMode::kLowRank));
  }
}

TEST_F(FlashNeuronsTest, GuessesOnlyWhereThereIsSomethingToRead) {
  const auto store = Open(0, false);
  FlashNeurons flash = Make(*store, false);
  EXPECT_FALSE(flash.ReadAheadPays());
  PutAll(flash, Every(2));
  flash.Request(0, false);
  ASSERT_TRUE(flash.Await().ok());
  EXPECT_TRUE(flash.ReadAheadPays());
  FlashNeurons never({.context = network_.context(),
                      .store = *store,
                      .deciding_held = false,
                      .read_ahead = false,
                      .tokens_max = kTokens});
  EXPECT_FALSE(never.ReadAheadPays());
  store->EndLayer(0);
}

}  // namespace
}  // namespace thermocline::ffn
