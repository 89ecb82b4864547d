// The neurons in memory are those of the bundle file, for all requests in any order, and for small
// caches.
#include "engine/store/neuron_store.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/engine/store/neuron_store_fixture.h"

namespace thermocline::store {
namespace {

TEST_F(NeuronStoreTest, GivesTheBytesThatWerePacked) {
  for (const std::size_t slots : {0U, 1U, 7U, 60U, 150U}) {
    for (const bool rest_only : {false, true}) {
      for (const int stages : {1, 2}) {
        SCOPED_TRACE(StrCat(slots, " slots, ", stages, " stages, rest_only ", rest_only));
        const Opened o = Open({.queue = {.rest_only = rest_only, .gap_bytes_max = 300},
                               .slots = slots,
                               .stages = stages});
        std::mt19937 random(static_cast<unsigned>(slots));
        for (int step = 0; step < 60 && !HasFatalFailure(); ++step) {
          RandomStep(*this, *o.store, random, 1 + step % 5, [&](int layer, const auto& needed) {
            for (const int neuron : needed) ExpectNeuron(*o.store, layer, neuron, rest_only);
          });
          ASSERT_LE(Cached(*o.store), static_cast<int>(slots));
        }
        const FlashCounters c = o.store->counters();
        EXPECT_GT(c.needed, 1000);
        if (slots == 150) {  // all were read during creation
          EXPECT_EQ(c.hits, c.needed);
        }
      }
    }
  }
}

TEST_F(NeuronStoreTest, BeginsWithTheMostActiveOfTheProfile) {
  const Opened o = Open({.slots = 7});
  EXPECT_EQ(Cached(*o.store), 7);
  for (int l = 0; l < kLayers; ++l) {
    for (int n = kNeurons - 2; n < kNeurons; ++n) EXPECT_TRUE(o.store->Has(l, n));
  }
  EXPECT_TRUE(o.store->Has(0, kNeurons - 3));
  EXPECT_EQ(o.store->counters().bytes, 0);  // counting starts here
}

TEST_F(NeuronStoreTest, WhatIsReadAheadIsCountedAsUsefulOrWasted) {
  const Opened o = Open({.slots = 20});
  const std::vector<int> guess = {1, 2, 3, 4}, needed = {2, 3, 30};
  o.store->Request(0, needed, {});
  o.store->ReadAhead(1, guess);
  ASSERT_TRUE(o.store->Await().ok());
  o.store->EndLayer(0);
  const auto come = [&] {  // all: none made room for the next
    return std::all_of(guess.begin(), guess.end(), [&](int n) { return o.store->Has(1, n); });
  };
  for (int i = 0; i < 1'000'000 && !come(); ++i) o.store->Poll();
  ASSERT_TRUE(come());
  o.store->Request(1, needed, {});
  ASSERT_TRUE(o.store->Await().ok());
  for (const int neuron : needed) ExpectNeuron(*o.store, 1, neuron, false);
  o.store->EndLayer(1);
  o.store->EndStep(1);
  EXPECT_EQ(o.store->counters().ahead_useful_bytes, 2 * 232);
}

// Neurons that only rejected tokens needed leave the cache unchanged.
TEST_F(NeuronStoreTest, RejectedTokensChangeNothing) {
  // One read at a time, one neuron each, so that they arrive in one order.
  const NeuronStore::Options options{.queue = {.read_bytes_max = 1}, .slots = 12, .half_life = 2};
  const Opened speculating = Open(options, 1), plain = Open(options, 1);
  std::mt19937 random(3);
  for (int step = 0; step < 100; ++step) {
    const int kept = 1 + step % 3;
    for (int l = 0; l < kLayers; ++l) {
      const std::vector<int> only_kept = SomeNeurons(random, 0.2, 30);
      std::vector<std::uint16_t> masks, kept_masks;
      for (std::size_t k = 0; k < only_kept.size(); ++k) {
        kept_masks.push_back(static_cast<std::uint16_t>(1 + random() % ((1U << kept) - 1)));
        masks.push_back(static_cast<std::uint16_t>(kept_masks.back() | (random() % 2) << kept));
      }
      std::vector<int> all = only_kept;
      for (int neuron = 30; neuron < 45; ++neuron) {  // used only by rejected tokens
        all.push_back(neuron);
        masks.push_back(static_cast<std::uint16_t>(1U << kept));
      }
      if (l == 0) speculating.store->ExpectKept(kept);
      speculating.store->Request(l, all, masks);
      plain.store->Request(l, only_kept, kept_masks);
      ASSERT_TRUE(speculating.store->Await().ok() && plain.store->Await().ok());
      for (const int neuron : all) ExpectNeuron(*speculating.store, l, neuron, false);
      speculating.store->EndLayer(l);
      plain.store->EndLayer(l);
    }
    speculating.store->EndStep(kept);
    plain.store->EndStep(kept);
    for (int l = 0; l < kLayers; ++l)
      for (int n = 0; n < kNeurons; ++n)
        ASSERT_EQ(speculating.store->Has(l, n), plain.store->Has(l, n)) << step << " " << n;
  }
  EXPECT_GT(plain.store->counters().evictions, 50);
}

// A cached neuron that only an unverified token needs must not be evicted for another of the same
// step: its rows are multiplied when all neurons are there.
TEST_F(NeuronStoreTest, WhatADoubtfulTokenNeedsStaysForTheStep) {
  const auto use = [](NeuronStore& store, std::span<const int> neurons,
                      std::span<const std::uint16_t> masks) {
    store.ExpectKept(1);
    store.Request(0, neurons, masks);
    ASSERT_TRUE(store.Await().ok());
  };
  const auto end = [](NeuronStore& store) {
    store.EndLayer(0);
    store.EndStep(1);
  };
  const std::vector<int> rising = {5}, both = {5, 49};
  int uses = 0;  // until the neuron in the only slot is evicted
  for (const Opened o = Open({.slots = 1}); o.store->Has(0, 49); ++uses) {
    use(*o.store, rising, {});
    end(*o.store);
  }
  ASSERT_GT(uses, 1);
  const Opened o = Open({.slots = 1});
  for (int i = 1; i < uses; ++i) {
    use(*o.store, rising, {});
    end(*o.store);
  }
  ASSERT_TRUE(o.store->Has(0, 49));
  use(*o.store, both, std::vector<std::uint16_t>{1, 2});
  for (const int neuron : both) ExpectNeuron(*o.store, 0, neuron, false);
  end(*o.store);
}

TEST_F(NeuronStoreTest, CountsWholeLayersThatDecodedTokensNeed) {
  const Opened o = Open({.slots = 5});
  for (const bool counted : {false, true}) {
    o.store->RequestAll(2, counted);
    ASSERT_TRUE(o.store->Await().ok());
    o.store->EndLayer(2);
    o.store->EndStep(1);
    EXPECT_EQ(o.store->counters().needed, counted ? kNeurons : 0);
    EXPECT_LE(o.store->counters().hits, counted ? 5 : 0);
  }
}

TEST_F(NeuronStoreTest, EndsWhileReadsAreUnderWay) {
  const Opened o = Open({.slots = 5});
  o.store->RequestAll(0);
}

}  // namespace
}  // namespace thermocline::store
