// The same weights give the same logits through every format.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/base/file.h"
#include "engine/load/loaded_model.h"
#include "engine/model/gguf/writer.h"
#include "engine/model/open/open_model.h"
#include "engine/model/transpose.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

const std::string kStories = SOURCE_DIR "/tests/golden/models/stories260K";
const std::string kTidepool = SOURCE_DIR "/tests/golden/models/tidepool/target";

class FormatsTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Logits after a few tokens.
  std::vector<float> Logits(const std::string& path) {
    const auto model = load::LoadModel({.model = {.path = path, .threads = 2}});
    EXPECT_TRUE(model.ok()) << model.status().message();
    if (!model.ok()) return {};
    const auto transformer = (*model)->MakeTransformer(8, 32);
    const auto cache = *(*model)->MakeCache(32);
    const std::vector<int> tokens = {1, 403, 407, 261, 378};
    const auto logits = *transformer->Forward(tokens, *cache, exec::Transformer::Logits::kLast);
    return {logits.begin(), logits.end()};
  }

  const std::string folder_ =
      testing::TempDir() + "thermocline formats " + std::to_string(::getpid());
};

// Converts llama2.c version 0 to version 1: another header, another order of tensors.
std::string ToVersion1(const std::string& v0) {
  const auto floats = [&](std::size_t offset, std::size_t n) { return v0.substr(offset, n * 4); };
  constexpr std::size_t D = 64, F = 172, L = 5, V = 512, KV = 32;
  std::size_t at = 28;
  const auto take = [&](std::size_t n) {
    const std::string out = floats(at, n);
    at += n * 4;
    return out;
  };
  const std::string embedding = take(V * D), attention_norms = take(L * D);
  const std::string projections = take(L * (D * D + 2 * KV * D + D * D)), ffn_norms = take(L * D),
                    ffn = take(3 * L * F * D), norm = take(D);
  std::string header = "24ka";
  const std::int32_t version = 1;
  header.append(reinterpret_cast<const char*>(&version), 4);
  header += v0.substr(0, 28);
  header.push_back(1);
  header.resize(256, '\0');
  return header + attention_norms + ffn_norms + norm + embedding + projections + ffn;
}

TEST_F(FormatsTest, Llama2cVersions0And1Agree) {
  const auto v0 = base::ReadFileToString(kStories + "/stories260K.bin");
  ASSERT_TRUE(v0.ok());
  std::ofstream(folder_ + "/v1.bin", std::ios::binary) << ToVersion1(*v0);
  std::filesystem::copy(kStories + "/tok512.bin", folder_ + "/tokenizer.bin");
  const auto file = OpenModelFile(folder_ + "/v1.bin");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->format, "llama2.c v1");
  EXPECT_EQ(Logits(folder_ + "/v1.bin"), Logits(kStories + "/stories260K.bin"));
}

TEST_F(FormatsTest, Llama2cOfAnotherSizeIsRefused) {
  const auto v0 = base::ReadFileToString(kStories + "/stories260K.bin");
  std::ofstream(folder_ + "/short.bin", std::ios::binary) << v0->substr(0, v0->size() - 4);
  const Status status = OpenModelFile(folder_ + "/short.bin").status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("1056540"), std::string::npos) << status.message();
}

TEST_F(FormatsTest, Llama2cWithoutTokenizerSaysWhatToDo) {
  std::filesystem::copy(kStories + "/stories260K.bin", folder_ + "/stories260K.bin");
  const Status status = OpenModelFile(folder_ + "/stories260K.bin").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_NE(status.message().find("tok512.bin"), std::string::npos) << status.message();
}

TEST_F(FormatsTest, ConvertedToGgufGivesTheSameBits) {
  for (const auto& [source, type] :
       {std::pair{kStories + "/stories260K.bin", std::optional<kernels::DType>{}},
        std::pair{kTidepool, std::optional<kernels::DType>{}},
        std::pair{kTidepool, std::optional{kernels::DType::kF32}}}) {
    const auto file = OpenModelFile(source);
    ASSERT_TRUE(file.ok()) << file.status().message();
    ASSERT_TRUE(
        WriteGguf(**file, folder_ + "/out.gguf",
                  {.type = type, .down = DownLayout::kColumns, .name = "x", .on_progress = {}})
            .ok());
    EXPECT_EQ(Logits(folder_ + "/out.gguf"), Logits(source)) << source;
  }
}

TEST_F(FormatsTest, TheBuiltInModelIsTheConvertedFolder) {
  const auto file = OpenModelFile(kTidepool);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(WriteGguf(**file, folder_ + "/tidepool.gguf",
                        {.type = kernels::DType::kQ8_0, .name = "Tidepool", .on_progress = {}})
                  .ok());
  EXPECT_TRUE(*base::ReadFileToString(folder_ + "/tidepool.gguf") ==
              *base::ReadFileToString(SOURCE_DIR "/config/models/tidepool.gguf"));
}

// All values of a tensor as floats, row after row.
std::vector<float> Values(const ModelFile& model, const TensorInfo& tensor) {
  std::vector<std::byte> row(tensor.row_bytes());
  std::vector<float> out(static_cast<std::size_t>(tensor.rows * tensor.cols));
  for (std::int64_t r = 0; r < tensor.rows; ++r) {
    EXPECT_TRUE(model.ReadRows(tensor, r, 1, row).ok());
    kernels::DequantizeRow(*tensor.type->dtype, reinterpret_cast<const std::uint8_t*>(row.data()),
                           static_cast<int>(tensor.cols),
                           &out[static_cast<std::size_t>(r * tensor.cols)]);
  }
  return out;
}

TEST_F(FormatsTest, StripsOfColumnsAreTheTranspose) {
  const auto tidepool = OpenModelFile(SOURCE_DIR "/config/models/tidepool.gguf");
  const auto stories = OpenModelFile(kStories + "/stories260K.bin");
  ASSERT_TRUE(tidepool.ok() && stories.ok());
  for (const auto& [model, name] :
       {std::pair{tidepool->get(), "blk.1.ffn_up.weight"},      // q8_0 [1024, 256]
        std::pair{tidepool->get(), "blk.0.attn_q.weight"},      // q8_0 [256, 256]
        std::pair{stories->get(), "blk.2.ffn_gate.weight"},     // f32 [172, 64]: odd rows
        std::pair{stories->get(), "blk.0.ffn_down.weight"}}) {  // f32 [64, 172]
    const TensorInfo& tensor = *model->Find(name);
    const std::vector<float> values = Values(*model, tensor);
    std::vector<float> turned(values.size()), alone(values.size());
    base::WorkerPool one(1), three(3);
    ASSERT_TRUE(ReadColumns(*model, tensor, 0, tensor.cols, three, turned).ok());
    ASSERT_TRUE(ReadColumns(*model, tensor, 0, tensor.cols, one, alone).ok());
    EXPECT_EQ(turned, alone);
    const auto rows = static_cast<std::size_t>(tensor.rows),
               cols = static_cast<std::size_t>(tensor.cols);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(turned[i % cols * rows + i / cols], values[i]) << name << " " << i;
  }
}

TEST_F(FormatsTest, AStripBeginsInsideTheRows) {
  const auto model = OpenModelFile(kTidepool);
  ASSERT_TRUE(model.ok());
  const TensorInfo& tensor = *(*model)->Find("blk.0.ffn_down.weight");  // bf16 [256, 1024]
  const std::vector<float> values = Values(**model, tensor);
  std::vector<float> turned(256 * 512);
  base::WorkerPool pool(2);
  ASSERT_TRUE(ReadColumns(**model, tensor, 256, 512, pool, turned).ok());
  for (std::size_t c = 0; c < 512; ++c)
    for (std::size_t r = 0; r < 256; ++r)
      ASSERT_EQ(turned[c * 256 + r], values[r * 1024 + 256 + c]);
}

TEST_F(FormatsTest, DamagedSafetensorsAreRefused) {
  std::filesystem::copy(kTidepool, folder_ + "/hf");
  const std::string path = folder_ + "/hf/model.safetensors";
  const auto whole = base::ReadFileToString(path);
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{7}, std::size_t{100}, whole->size() - 2}) {
    std::ofstream(path, std::ios::binary) << whole->substr(0, length);
    EXPECT_FALSE(OpenModelFile(folder_ + "/hf").ok()) << length;
  }
  std::string huge = *whole;
  std::memset(huge.data(), 0xFF, 8);
  std::ofstream(path, std::ios::binary) << huge;
  EXPECT_FALSE(OpenModelFile(folder_ + "/hf").ok());
}

}  // namespace
}  // namespace thermocline::model
