// Streamed layers are those of the bundle file, in order, whatever the device does.
#include "engine/store/layer_stream.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "engine/base/file.h"
#include "engine/base/huge_buffer.h"
#include "engine/base/log.h"
#include "engine/offline/bundle_writer.h"
#include "tests/engine/store/faulty_reader.h"

namespace thermocline::store {
namespace {

const std::string kHash(32, 'l');
constexpr int kLayers = 7;
constexpr std::size_t kImage = (std::size_t{2} << 20) + 8192;  // three pieces

TEST(SpreadStages, AlternateAroundTheEndAndAreSpreadEvenly) {
  for (int layers = 1; layers <= 40; ++layers) {
    for (int held = 0; held < layers; ++held) {
      const std::vector<int> stages = SpreadStages(layers, held);
      ASSERT_EQ(stages.size(), static_cast<std::size_t>(layers));
      std::vector<int> streamed;
      for (int l = 0; l < layers; ++l) {
        if (stages[static_cast<std::size_t>(l)] >= 0) streamed.push_back(l);
      }
      const auto n = static_cast<int>(streamed.size());
      ASSERT_EQ(n % 2, 0) << layers << " " << held;
      ASSERT_LE(std::abs(n - (layers - held)), 1);
      int least = layers, most = 0;
      for (int i = 0; i < n; ++i) {
        const int here = streamed[static_cast<std::size_t>(i)];
        const int next = streamed[static_cast<std::size_t>((i + 1) % n)];
        EXPECT_NE(stages[static_cast<std::size_t>(here)], stages[static_cast<std::size_t>(next)]);
        const int distance = (next - here + layers - 1) % layers + 1;
        least = std::min(least, distance);
        most = std::max(most, distance);
      }
      if (n > 0) {
        EXPECT_LE(most - least, 2) << layers << " " << held;
      }
    }
  }
}

class LayerStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    base::ConfigureLog(base::LogLevel::kError, false);
    std::filesystem::create_directories(folder_);
    BundleIndex plan{.kind = BundleIndex::Kind::kLayers,
                     .model_hash = kHash,
                     .hidden_size = 64,
                     .intermediate_size = 50,
                     .num_hidden_layers = kLayers};
    plan.image_bytes = kImage;
    auto writer = offline::BundleWriter::Open(path_, plan);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    std::mt19937_64 random(9);
    std::vector<std::byte> image(kImage);
    for (int l = 0; l < kLayers; ++l) {
      for (std::byte& byte : image) byte = static_cast<std::byte>(random());
      ASSERT_TRUE((*writer)->AddImage(image).ok());
    }
    ASSERT_TRUE((*writer)->Commit().ok());
    index_ = *ReadBundleIndex(path_, {kHash, 64, 50, kLayers});
    file_ = *base::ReadFileToString(path_);
  }
  void TearDown() override {
    stream_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Open(int held, int depth = 2) {
    stages_ = SpreadStages(kLayers, held);
    memory_ = *base::HugeBuffer::Allocate(2 * kImage);
    std::vector<LayerStream::Layer> layers;
    for (const int stage : stages_) {
      LayerStream::Layer layer{.stage = stage};
      if (stage >= 0)
        layer.image = {memory_.data() + static_cast<std::size_t>(stage) * kImage, kImage};
      layers.push_back(layer);
    }
    auto reader = OpenBlockReader(path_, {.depth = depth, .allow_io_uring = false});
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    auto faulty = std::make_unique<FaultyReader>(*std::move(reader));
    device_ = faulty.get();
    auto stream =
        LayerStream::Create(index_, std::move(faulty), layers, {memory_.data(), memory_.size()});
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    stream_ = *std::move(stream);
  }

  // Runs a token through the layers; returns the first error.
  Status Pass() {
    for (int l = 0; l < kLayers; ++l) {
      RETURN_IF_ERROR(stream_->Wait(l));
      const int stage = stages_[static_cast<std::size_t>(l)];
      if (stage >= 0) {
        const auto* at = reinterpret_cast<const char*>(memory_.data()) +
                         static_cast<std::size_t>(stage) * kImage;
        EXPECT_EQ(std::string_view(at, kImage),
                  std::string_view(file_).substr(index_.ImageOffset(l), kImage))
            << "layer " << l;
      }
      stream_->Done(l);
    }
    return OkStatus();
  }

  const std::string folder_ = StrCat(testing::TempDir(), "layer-stream-", ::getpid());
  const std::string path_ = folder_ + "/model.tcb";
  BundleIndex index_;
  std::string file_;
  std::vector<int> stages_;
  base::HugeBuffer memory_;
  FaultyReader* device_ = nullptr;  // the device of stream_
  std::unique_ptr<LayerStream> stream_;
};

TEST_F(LayerStreamTest, BringsEveryLayerInOrder) {
  for (const int held : {1, 3, 5}) {
    for (const int depth : {1, 2, 8}) {
      Open(held, depth);
      for (int token = 0; token < 4; ++token) {
        const Status status = Pass();
        ASSERT_TRUE(status.ok()) << status.message();
      }
      EXPECT_EQ(stream_->counters().io_errors + stream_->counters().crc_errors, 0);
      const std::int64_t streamed = kLayers - held;
      // Two layers stay in their stages.
      const std::int64_t layers = streamed == 2 ? 2 : 4 * streamed + 2;
      EXPECT_LE(stream_->counters().reads, 3 * layers);
    }
  }
}

TEST_F(LayerStreamTest, ErrorsOnceAreTriedAgain) {
  for (const Fault::Kind kind : {Fault::Kind::kError, Fault::Kind::kShort, Fault::Kind::kFlip}) {
    Open(1);
    const std::uint64_t byte = index_.ImageOffset(2) + (1 << 20);
    device_->Inject({.kind = kind, .begin = byte, .end = byte + 1, .count = 1});
    const Status status = Pass();
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(stream_->counters().retries, 1);
    EXPECT_EQ(stream_->counters().crc_errors, kind == Fault::Kind::kFlip ? 1 : 0);
  }
}

// Several reads end at once with an error: none may be considered pending, or the next token would
// wait for it forever.
TEST_F(LayerStreamTest, ErrorsForGoodNameTheLayerAndPass) {
  struct Case {
    Fault::Kind kind;
    StatusCode code;
    const char* words;
  };
  for (const Case& c : {Case{Fault::Kind::kError, StatusCode::kUnavailable, "Input/output error"},
                        Case{Fault::Kind::kShort, StatusCode::kDataLoss, "truncated"},
                        Case{Fault::Kind::kFlip, StatusCode::kDataLoss, "CRC32C"}}) {
    Open(1, 8);
    ASSERT_TRUE(Pass().ok());
    device_->Inject({.kind = c.kind, .begin = index_.ImageOffset(4), .end = index_.ImageOffset(5)});
    for (int again = 0; again < 3; ++again) {
      const Status status = Pass();
      EXPECT_EQ(status.code(), c.code) << status.message();
      for (const std::string& words : {path_, std::string("layer 4, "), std::string(c.words)})
        EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
      stream_->Abandon();
    }
    device_->Clear();
    for (int token = 0; token < 2; ++token) {
      const Status status = Pass();
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
}

TEST_F(LayerStreamTest, WhatComesAfterItWasGivenUpIsDropped) {
  Open(1);
  ASSERT_TRUE(Pass().ok());
  const std::uint64_t byte = index_.ImageOffset(4);
  device_->Inject({.kind = Fault::Kind::kDelay, .begin = byte, .end = byte + 1, .count = 1});
  bool goes_on = true;
  stream_->SetOnWait([&] { return goes_on = goes_on && device_->delayed() == 0; });
  EXPECT_EQ(Pass().code(), StatusCode::kCancelled);
  stream_->Abandon();
  // The next token waits for pending writes into the stages; it can be cancelled, too.
  EXPECT_EQ(Pass().code(), StatusCode::kCancelled);
  stream_->Abandon();
  stream_->SetOnWait({});
  device_->Release();
  const Status status = Pass();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(LayerStreamTest, OtherImagesAreRefused) {
  auto reader = OpenBlockReader(path_, {.depth = 2, .allow_io_uring = false});
  memory_ = *base::HugeBuffer::Allocate(2 * kImage);
  std::vector<LayerStream::Layer> layers(kLayers);
  layers[0] = {.stage = 0, .image = {memory_.data(), kImage - 4096}};
  layers[1] = {.stage = 1, .image = {memory_.data() + kImage, kImage - 4096}};
  const auto stream =
      LayerStream::Create(index_, *std::move(reader), layers, {memory_.data(), memory_.size()});
  EXPECT_EQ(stream.status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace thermocline::store
