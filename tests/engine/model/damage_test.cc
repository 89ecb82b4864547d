// A damaged model gives a Status, never a crash. Run under the address sanitizer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/base/file.h"
#include "engine/load/loaded_model.h"
#include "engine/model/gguf/container.h"
#include "engine/model/gguf/writer.h"
#include "engine/model/open/open_model.h"

namespace thermocline::model {
namespace {

class DamageTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    const auto bytes = base::ReadFileToString(SOURCE_DIR "/config/models/tidepool-draft.gguf");
    ASSERT_TRUE(bytes.ok());
    bytes_ = *bytes;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Status Try(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    const auto model = load::LoadModel({.model = {.path = path_, .threads = 1}});
    return model.status();
  }

  // The file with the number at `key` (u32, or f32 by its bits) replaced.
  std::string With(const std::string& key, std::uint32_t value) {
    std::string out = bytes_;
    const std::size_t at = out.find(key);
    EXPECT_NE(at, std::string::npos) << key;
    std::memcpy(out.data() + at + key.size() + 4, &value, 4);  // after the value's type
    return out;
  }

  const std::string folder_ =
      testing::TempDir() + "thermocline_damage_" + std::to_string(::getpid());
  const std::string path_ = folder_ + "/model.gguf";
  std::string bytes_;
};

TEST_F(DamageTest, TheWholeFileLoads) { EXPECT_TRUE(Try(bytes_).ok()); }

TEST_F(DamageTest, TruncatedAnywhereIsRefused) {
  for (std::size_t length = 0; length < bytes_.size(); length += length < 2000 ? 7 : 29989) {
    EXPECT_FALSE(Try(bytes_.substr(0, length)).ok()) << length;
  }
}

TEST_F(DamageTest, CutWhileItsHeaderIsRead) {
  std::ofstream(path_, std::ios::binary) << bytes_;
  const auto file = base::OpenFile(path_);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path_, 100);
  const auto container = ReadGgufContainer(**file, 0);
  EXPECT_EQ(container.status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(container.status().message().starts_with(path_ + ": file ends"))
      << container.status().message();
}

TEST_F(DamageTest, FlippedBitsNeverCrash) {
  std::mt19937 generator(5);
  int refused = 0;
  constexpr std::size_t kHeaderBytes = 60000;  // metadata and tensor infos
  for (int i = 0; i < 400; ++i) {
    std::string damaged = bytes_;
    for (auto flips = 1 + generator() % 3; flips > 0; --flips) {
      damaged[generator() % (i % 2 == 0 ? 2000 : kHeaderBytes)] ^=
          static_cast<char>(1 << generator() % 8);
    }
    refused += Try(damaged).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 50);
}

TEST_F(DamageTest, FlippedBitsOfAPowerInferFileNeverCrash) {
  const std::string source = folder_ + "/powerinfer.gguf";
  {
    const auto model = OpenModelFile(SOURCE_DIR "/config/models/tidepool-draft.gguf");
    ASSERT_TRUE(model.ok());
    const auto zeros = [](std::int64_t, std::span<float> out) {
      std::fill(out.begin(), out.end(), 0.0F);
      return OkStatus();
    };
    for (int i = 0; i < (*model)->config.num_hidden_layers; ++i) {
      (*model)->AddMatrix(StrCat("blk.", i, ".fc1.weight"), 32, 128, zeros);
      (*model)->AddMatrix(StrCat("blk.", i, ".fc2.weight"), 384, 32, zeros);
    }
    ASSERT_TRUE(WriteGguf(**model, source,
                          {.type = kernels::DType::kF16,
                           .down = DownLayout::kRows,
                           .powerinfer = true,
                           .name = "x",
                           .on_progress = {}})
                    .ok());
  }
  const std::string whole = *base::ReadFileToString(source);
  ASSERT_TRUE(OpenModelFile(source).ok());
  const std::size_t infos = whole.find("token_embd.weight");
  std::mt19937 generator(6);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    std::string damaged = whole;
    for (auto flips = 1 + generator() % 3; flips > 0; --flips)
      damaged[i % 2 == 0 ? generator() % 2000 : infos + generator() % 1500] ^=
          static_cast<char>(1 << generator() % 8);
    std::ofstream(path_, std::ios::binary) << damaged;
    const auto model = OpenModelFile(path_);
    if (!model.ok()) ++refused;
    if (model.ok())
      (void)WriteGguf(**model, folder_ + "/turned.gguf",
                      {.type = {}, .down = DownLayout::kColumns, .name = "x", .on_progress = {}});
  }
  EXPECT_GT(refused, 50);
}

TEST_F(DamageTest, HugeCountsAndLengthsAreRefusedBeforeTheyAreUsed) {
  for (const std::size_t at :
       {std::size_t{8}, std::size_t{16}, std::size_t{24}}) {  // tensors, keys, first key's length
    for (const char fill : {'\xFF', '\x7F'}) {
      std::string damaged = bytes_;
      for (std::size_t i = 0; i < 8; ++i) damaged[at + i] = fill;
      const Status status = Try(damaged);
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find(path_), std::string::npos) << status.message();
    }
  }
}

TEST_F(DamageTest, AnArrayOfBillionsIsRefusedThoughTheFileIsLargeEnough) {
  // Key "a", an array (9) of u8 (0) with 2^32 elements, in a sparse file.
  std::string header(
      "GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0a\x09\0\0\0\0\0\0\0\0\0\0"
      "\0\x01\0\0\0",
      49);
  std::ofstream(path_, std::ios::binary) << header;
  std::filesystem::resize_file(path_, std::uint64_t{5} << 30);
  const Status status = load::LoadModel({.model = {.path = path_, .threads = 1}}).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("4294967296 elements"), std::string::npos) << status.message();
}

TEST_F(DamageTest, MessagesNameWhatIsWrong) {
  const auto expect = [&](const std::string& bytes, const char* words) {
    const Status status = Try(bytes);
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  expect("", "no model");
  expect(std::string(100, 'x'), "magic");
  std::string version = bytes_;
  version[4] = 9;
  expect(version, "GGUF version 9");
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string out = bytes_;
    const std::size_t at = out.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return out.replace(at, from.size(), to);
  };
  expect(replaced("llama", "lemur"), "architecture 'lemur'");
  expect(replaced("blk.0.ffn_up.weight", "blk.0.ffn_xx.weight"),
         "tensor 'blk.0.ffn_up.weight' is missing");
  expect(replaced("llama.block_count", "llama.block_xxxxx"), "key 'llama.block_count' is missing");
  expect(bytes_.substr(0, bytes_.size() - 1000), "tensor");
  EXPECT_EQ(
      load::LoadModel({.model = {.path = folder_ + "/none.gguf", .threads = 1}}).status().code(),
      StatusCode::kNotFound);
}

TEST_F(DamageTest, ShapesThatCannotBeAreRefusedByName) {
  const auto expect = [&](const char* key, std::uint32_t value, const char* words) {
    const Status status = Try(With(key, value));
    EXPECT_FALSE(status.ok()) << key << " = " << value;
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  };
  for (const std::uint32_t value : {0U, 0x0FFFFFFFU}) {
    expect("llama.attention.head_count", value, "");
    expect("llama.attention.head_count_kv", value, "num_key_value_heads");
    expect("llama.embedding_length", value, "");
    expect("llama.feed_forward_length", value, "intermediate_size");
    expect("llama.block_count", value, "num_hidden_layers");
    expect("llama.context_length", value, "max_position_embeddings");
    expect("llama.attention.key_length", value, "");
    expect("llama.rope.dimension_count", value, "rope dimensions");
  }
  expect("llama.attention.head_count", 0, "num_attention_heads is 0");
  expect("llama.attention.head_count_kv", 3, "num_key_value_heads 3");
  expect("llama.rope.dimension_count", 7, "rope dimensions are 7; they must be even");
  expect("llama.attention.key_length", 48, "values");  // key and value sizes differ
  expect("llama.block_count", 3, "blk.");              // the file has another number of layers
  expect("llama.feed_forward_length", 1234, "expected [1234, ");
  expect("llama.rope.freq_base", 0x7FC00000U, "rope_theta");  // NaN
  expect("llama.attention.layer_norm_rms_epsilon", 0x7F800000U, "epsilon");
}

TEST_F(DamageTest, RowsThatAreNoWholeBlocksAreRefused) {
  // The first dimension (u64) of a tensor follows its name and dimension count (u32).
  std::string damaged = bytes_;
  const std::string name = "blk.1.attn_q.weight";
  damaged[damaged.find(name) + name.size() + 4] |= 1;
  const Status status = Try(damaged);
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("no multiple of q8_0's block of 32"), std::string::npos)
      << status.message();
}

TEST_F(DamageTest, UnsupportedTypesAreNamed) {
  // The type of a tensor follows its name, dimension count (u32) and dimensions (u64 each).
  std::string damaged = bytes_;
  const std::string name = "blk.1.attn_q.weight";
  damaged[damaged.find(name) + name.size() + 4 + 16] =
      24;  // i8: a byte per element, smaller than q8_0
  const Status status = Try(damaged);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find(name + "' has type i8"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace thermocline::model
