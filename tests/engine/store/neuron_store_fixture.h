// A bundle file of random neurons, stores that read it, and steps with them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/offline/bundle_writer.h"
#include "engine/store/neuron_store.h"
#include "tests/engine/store/faulty_reader.h"

namespace thermocline::store {

inline const std::string kHash(32, 's');
inline constexpr int kHidden = 64, kNeurons = 50, kLayers = 3;

// A matrix of random bytes.
struct Rows {
  std::vector<std::uint8_t> bytes;
  kernels::RowMatrix matrix;

  Rows(kernels::DType type, std::mt19937& random)
      : bytes(kNeurons * kernels::RowBytes(type, kHidden)),
        matrix{type, kNeurons, kHidden, bytes.data()} {
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  }
};

// A store, and the objects that it uses.
struct Opened {
  std::unique_ptr<NeuronStore> store;
  FaultyReader* device = nullptr;  // the store's device
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
                   .gate_type = kernels::DType::kQ4_0,
                   .up_type = kernels::DType::kQ8_0,
                   .down_type = kernels::DType::kF16,
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
      const Rows gate(kernels::DType::kQ4_0, random), up(kernels::DType::kQ8_0, random),
          down(kernels::DType::kF16, random);
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

  // Checks gate, up and down at the addresses of the tables.
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

  // A byte of the file within the neuron's bundle.
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

inline std::vector<int> SomeNeurons(std::mt19937& random, double share, int end = kNeurons) {
  std::vector<int> out;
  std::bernoulli_distribution pick(share);
  for (int n = 0; n < end; ++n)
    if (pick(random)) out.push_back(n);
  return out;
}

// A step of up to `tokens` tokens, some of which are rejected later; prefetches are right, wrong,
// and too late.
inline void RandomStep(
    const NeuronStoreTest&, NeuronStore& store, std::mt19937& random, int tokens,
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
    if (random() % 2 == 0) store.Poll();
    check(l, needed);
    store.EndLayer(l);
  }
  store.EndStep(kept);
}

}  // namespace thermocline::store
