// The neurons in memory are those of the bundle file, whatever is asked for in which order, however
// small the cache, and whatever the device does.
#include "engine/store/neuron_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/offline/bundle_writer.h"
#include "tests/engine/store/faulty_reader.h"

namespace thermocline::store {
namespace {

using kernels::DType;

const std::string kHash(32, 's');
constexpr int kHidden = 64, kNeurons = 50, kLayers = 3;

// A matrix of random bytes.
struct Rows {
  std::vector<std::uint8_t> bytes;
  kernels::RowMatrix matrix;

  Rows(DType type, std::mt19937& random)
      : bytes(kNeurons * kernels::RowBytes(type, kHidden)),
        matrix{type, kNeurons, kHidden, bytes.data()} {
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  }
};

// A store, and what is put behind it.
struct Opened {
  std::unique_ptr<NeuronStore> store;
  FaultyReader* device = nullptr;  // of the store
};

class NeuronStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    base::ConfigureLog(base::LogLevel::kError, false);
    std::filesystem::create_directories(folder_);
    Write();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Groups of seven, an order that differs from layer to layer, neuron 49 the most active.
  void Write() {
    BundleIndex plan{.model_hash = kHash,
                     .hidden_size = kHidden,
                     .intermediate_size = kNeurons,
                     .num_hidden_layers = kLayers,
                     .profiled_tokens = 200};
    plan.layout = {.gated = true,
                   .gate_type = DType::kQ4_0,
                   .up_type = DType::kQ8_0,
                   .down_type = DType::kF16,
                   .gate_bytes = 36,
                   .up_bytes = 68,
                   .down_bytes = 128,
                   .neurons_per_group = 7,
                   .group_stride = 4096};
    std::mt19937 random(5);
    plan.layers.resize(kLayers);
    for (BundleIndex::Layer& layer : plan.layers) {
      layer.position.resize(kNeurons);
      std::iota(layer.position.begin(), layer.position.end(), 0);
      std::shuffle(layer.position.begin(), layer.position.end(), random);
      for (std::uint32_t i = 0; i < kNeurons; ++i) layer.activations.push_back(i * 3);
    }
    auto writer = offline::BundleWriter::Open(path_, plan);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (int l = 0; l < kLayers; ++l) {
      const Rows gate(DType::kQ4_0, random), up(DType::kQ8_0, random), down(DType::kF16, random);
      ASSERT_TRUE((*writer)->AddNeurons({gate.matrix, up.matrix, down.matrix}).ok());
    }
    ASSERT_TRUE((*writer)->Commit().ok());
    index_ = *ReadBundleIndex(path_, {kHash, kHidden, kNeurons, kLayers});
    file_ = *base::ReadFileToString(path_);
  }

  Opened Open(const NeuronStore::Options& options, int depth = 8) {
    auto reader = OpenBlockReader(path_, {.depth = depth, .allow_io_uring = false});
    EXPECT_TRUE(reader.ok()) << reader.status().message();
    auto faulty = std::make_unique<FaultyReader>(*std::move(reader));
    Opened out{.store = nullptr, .device = faulty.get()};
    auto store = NeuronStore::Create(index_, std::move(faulty), options);
    EXPECT_TRUE(store.ok()) << store.status().message();
    out.store = *std::move(store);
    return out;
  }

  // Gate, up and down lie where the tables say.
  void ExpectNeuron(const NeuronStore& store, int layer, int neuron, bool rest_only) const {
    const std::uint8_t* at = store.where(layer)[neuron];
    ASSERT_NE(at, nullptr) << "layer " << layer << ", neuron " << neuron;
    const auto expect = [&](const std::uint8_t* row, std::size_t from, std::size_t bytes) {
      const std::string_view expected =
          std::string_view(file_).substr(index_.BundleOffset(layer, neuron) + from, bytes);
      ASSERT_EQ(std::string_view(reinterpret_cast<const char*>(row), bytes), expected)
          << "layer " << layer << ", neuron " << neuron << ", from " << from;
    };
    if (!rest_only) expect(at, 0, 36);
    expect(at + store.up_ahead(), 36, 68);
    expect(at + store.down_ahead(), 104, 128);
  }

  // Byte of the file within the neuron's bundle.
  std::uint64_t ByteOf(int layer, int neuron) const {
    return index_.BundleOffset(layer, neuron) + 50;
  }

  static int Cached(const NeuronStore& store) {
    int count = 0;
    for (int l = 0; l < kLayers; ++l)
      for (int n = 0; n < kNeurons; ++n) count += store.Has(l, n) ? 1 : 0;
    return count;
  }

  const std::string folder_ = StrCat(testing::TempDir(), "neuron-store-", ::getpid());
  const std::string path_ = folder_ + "/model.tcb";
  BundleIndex index_;
  std::string file_;
};

std::vector<int> SomeNeurons(std::mt19937& random, double share, int end = kNeurons) {
  std::vector<int> out;
  std::bernoulli_distribution pick(share);
  for (int n = 0; n < end; ++n)
    if (pick(random)) out.push_back(n);
  return out;
}

// A step of up to `tokens` tokens, of which some turn out to be rejected; guesses ahead are right,
// wrong, and too late.
void RandomStep(const NeuronStoreTest&, NeuronStore& store, std::mt19937& random, int tokens,
                const std::function<void(int layer, const std::vector<int>& needed)>& check) {
  const int kept = static_cast<int>(random() % static_cast<unsigned>(tokens + 1));
  if (random() % 2 == 0) store.ExpectKept(kept);
  for (int l = 0; l < kLayers; ++l) {
    std::vector<int> needed = SomeNeurons(random, 0.3);
    if (random() % 8 == 0) {
      needed.resize(kNeurons);
      std::iota(needed.begin(), needed.end(), 0);
      store.RequestAll(l);
    } else {
      std::vector<std::uint16_t> masks;
      for (std::size_t k = 0; k < needed.size(); ++k)
        masks.push_back(static_cast<std::uint16_t>(1 + random() % ((1U << tokens) - 1)));
      store.Request(l, needed, masks);
    }
    if (l + 1 < kLayers && random() % 2 == 0) store.ReadAhead(l + 1, SomeNeurons(random, 0.3));
    const Status status = store.Await();
    ASSERT_TRUE(status.ok()) << status.message();
    check(l, needed);
    if (l + 1 < kLayers && random() % 8 == 0) store.ReadAllAhead(l + 1);
    if (random() % 2 == 0) store.Poke();
    check(l, needed);
    store.EndLayer(l);
  }
  store.EndStep(kept);
}

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
        if (slots == 150) {  // all were read while it was made
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
  EXPECT_EQ(o.store->counters().bytes, 0);  // counted from here on
}

TEST_F(NeuronStoreTest, WhatIsReadAheadIsCountedAsUsefulOrWasted) {
  const Opened o = Open({.slots = 20});
  const std::vector<int> guess = {1, 2, 3, 4}, needed = {2, 3, 30};
  o.store->Request(0, needed, {});
  o.store->ReadAhead(1, guess);
  ASSERT_TRUE(o.store->Await().ok());
  o.store->EndLayer(0);
  const auto come = [&] {  // all: none has made room for the next
    return std::all_of(guess.begin(), guess.end(), [&](int n) { return o.store->Has(1, n); });
  };
  for (int i = 0; i < 1'000'000 && !come(); ++i) o.store->Poke();
  ASSERT_TRUE(come());
  o.store->Request(1, needed, {});
  ASSERT_TRUE(o.store->Await().ok());
  for (const int neuron : needed) ExpectNeuron(*o.store, 1, neuron, false);
  o.store->EndLayer(1);
  o.store->EndStep(1);
  EXPECT_EQ(o.store->counters().ahead_useful_bytes, 2 * 232);
}

// What only rejected tokens needed leaves no trace: the cache is as if they had never been there.
TEST_F(NeuronStoreTest, RejectedTokensChangeNothing) {
  // One read at a time, one neuron each: they arrive in one order.
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
      for (int neuron = 30; neuron < 45; ++neuron) {  // of rejected tokens alone
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

// A neuron in the cache that only a token of doubtful fate needs must not make room for another of
// the same step: its rows are multiplied when all are there.
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
  int uses = 0;  // until the neuron in the only slot makes room for another
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

TEST_F(NeuronStoreTest, AnErrorOnceIsTriedAgain) {
  const Opened o = Open({.slots = 0});
  for (const Fault::Kind kind : {Fault::Kind::kError, Fault::Kind::kShort}) {
    const FlashCounters before = o.store->counters();
    o.device->Inject({.kind = kind, .count = 1, .bytes = 512});
    o.store->Request(0, std::vector<int>{3, 17, 40}, {});
    const Status status = o.store->Await();
    ASSERT_TRUE(status.ok()) << status.message();
    for (const int neuron : {3, 17, 40}) ExpectNeuron(*o.store, 0, neuron, false);
    o.store->EndLayer(0);
    o.store->EndStep(1);
    EXPECT_EQ(o.store->counters().retries - before.retries, 1);
    EXPECT_EQ(o.store->counters().io_errors - before.io_errors, 1);
  }
}

// The step fails; the next one begins anew, and works once the device does.
TEST_F(NeuronStoreTest, ErrorsForGoodNameTheLayerAndPass) {
  struct Case {
    Fault::Kind kind;
    StatusCode code;
    const char* words;
  };
  for (const Case& c :
       {Case{Fault::Kind::kError, StatusCode::kUnavailable, "Input/output error"},
        Case{Fault::Kind::kShort, StatusCode::kDataLoss, "truncated"},
        Case{Fault::Kind::kFlip, StatusCode::kDataLoss, "neuron 17: the bundle's CRC32C"}}) {
    const Opened o = Open({.slots = 9});
    const std::uint64_t byte = ByteOf(1, 17);
    o.device->Inject({.kind = c.kind, .begin = byte, .end = byte + 1});
    for (int again = 0; again < 2; ++again) {
      o.store->Request(1, std::vector<int>{3, 17, 40}, {});
      const Status status = o.store->Await();
      EXPECT_EQ(status.code(), c.code) << status.message();
      for (const std::string& words : {path_, std::string("layer 1, "), std::string(c.words)})
        EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
      o.store->Abandon();
      EXPECT_LE(Cached(*o.store), 9);
    }
    o.device->Clear();
    std::mt19937 random(1);
    for (int step = 0; step < 20; ++step) {
      RandomStep(*this, *o.store, random, 2, [&](int layer, const auto& needed) {
        for (const int neuron : needed) ExpectNeuron(*o.store, layer, neuron, false);
      });
    }
    EXPECT_GT(o.store->counters().io_errors + o.store->counters().crc_errors, 0);
  }
}

TEST_F(NeuronStoreTest, AFlippedBitIsReadOnceMore) {
  const Opened o = Open({.slots = 0, .stages = 1});
  const std::uint64_t byte = ByteOf(2, 30);
  o.device->Inject({.kind = Fault::Kind::kFlip, .begin = byte, .end = byte + 1, .count = 1});
  o.store->RequestAll(2);
  const Status status = o.store->Await();
  ASSERT_TRUE(status.ok()) << status.message();
  for (int neuron = 0; neuron < kNeurons; ++neuron) ExpectNeuron(*o.store, 2, neuron, false);
  EXPECT_EQ(o.store->counters().crc_errors, 1);
}

// An error that Poke meets while other work goes on ends the step that needs the neuron.
TEST_F(NeuronStoreTest, AnErrorBetweenOtherWorkIsNotForgotten) {
  const Opened o = Open({.slots = 0});
  o.device->Inject({.kind = Fault::Kind::kError});
  o.store->Request(0, std::vector<int>{3}, {});
  while (o.store->counters().io_errors < 3) o.store->Poke();
  o.device->Clear();
  EXPECT_EQ(o.store->Await().code(), StatusCode::kUnavailable);
  o.store->Abandon();
  o.store->Request(0, std::vector<int>{3}, {});
  EXPECT_TRUE(o.store->Await().ok());
}

TEST_F(NeuronStoreTest, WhatComesAfterItWasGivenUpIsDropped) {
  const Opened o = Open({.slots = 5}, 4);
  o.device->Inject({.kind = Fault::Kind::kDelay, .count = 3});
  int waits = 0;
  o.store->SetOnWait([&] { return ++waits < 10; });
  o.store->Request(0, std::vector<int>{3, 17, 40}, {});
  o.store->ReadAllAhead(1);
  EXPECT_EQ(o.store->Await().code(), StatusCode::kCancelled);
  EXPECT_EQ(waits, 10);
  o.store->Abandon();
  EXPECT_LE(Cached(*o.store), 5);
  o.store->SetOnWait({});
  o.device->Release();  // lands while others are read
  std::mt19937 random(2);
  for (int step = 0; step < 20; ++step) {
    RandomStep(*this, *o.store, random, 1, [&](int layer, const auto& needed) {
      for (const int neuron : needed) ExpectNeuron(*o.store, layer, neuron, false);
    });
    ASSERT_LE(Cached(*o.store), 5);
  }
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
