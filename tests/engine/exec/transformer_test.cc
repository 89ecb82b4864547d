// The same input gives the same bits, whatever the threads, the chunks and the kernels.
#include "engine/exec/transformer.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "engine/load/loaded_model.h"

namespace thermocline::exec {
namespace {

const std::string kModel = SOURCE_DIR "/config/models/tidepool.gguf";

std::vector<int> Prompt() {
  std::vector<int> tokens = {1};
  for (int i = 1; i < 300; ++i) tokens.push_back(300 + i * 37 % 1500);
  return tokens;
}

load::LoadOptions Options(int threads, const std::string& isa, const std::string& path = kModel) {
  load::LoadOptions options;
  options.model.path = path;
  options.model.threads = threads;
  options.model.cpu_isa = isa;
  return options;
}

// Logits of every position.
std::vector<float> AllLogits(int threads, int chunk, const std::string& isa,
                             const std::string& path = kModel, KvType kv = KvType::kF16) {
  load::LoadOptions options = Options(threads, isa, path);
  options.model.kv_type = kv;
  const auto model = load::LoadModel(options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  const auto transformer = (*model)->MakeTransformer(chunk, 320, chunk);
  auto cache = *(*model)->MakeCache(320);
  const std::vector<int> prompt = Prompt();
  std::vector<float> out;
  for (std::size_t begin = 0; begin < prompt.size(); begin += static_cast<std::size_t>(chunk)) {
    const std::size_t count = std::min(static_cast<std::size_t>(chunk), prompt.size() - begin);
    const auto logits = *transformer->Forward(std::span(prompt).subspan(begin, count), *cache,
                                              Transformer::Logits::kAll);
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

TEST(Transformer, BitsDoNotDependOnThreadsOrChunks) {
  const auto expected = AllLogits(1, 1, "");
  for (const int threads : {1, 2, 4}) {
    for (const int chunk : {1, 7, 300})
      EXPECT_EQ(AllLogits(threads, chunk, ""), expected)
          << threads << " threads, chunks of " << chunk;
  }
}

TEST(Transformer, BitsDoNotDependOnChunksOrTheIsaWithKeysInBytes) {
  const auto expected = AllLogits(1, 1, "", kModel, KvType::kQ8_0);
  EXPECT_NE(expected, AllLogits(1, 1, ""));
  for (const char* isa : {"", "avx2", "avxvnni", "avx512", "amx", "neon", "i8mm"}) {
    if (*isa != '\0' && kernels::CpuOps(isa) == nullptr) continue;
    for (const int chunk : {7, 300})
      EXPECT_EQ(AllLogits(2, chunk, isa, kModel, KvType::kQ8_0), expected) << isa << ' ' << chunk;
  }
}

// A prompt's earlier part, of which only the KV cache and the states are wanted.
TEST(Transformer, LayersThatNothingNeedsChangeNoBits) {
  int families = 0;
  for (const auto& folder :
       std::filesystem::directory_iterator(SOURCE_DIR "/tests/golden/architectures")) {
    if (!folder.is_directory()) continue;
    const std::string path = folder.path().string(), name = folder.path().filename().string();
    ++families;
    const auto model = load::LoadModel(Options(2, "", path));
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto transformer = (*model)->MakeTransformer(16, 64);
    std::vector<float> expected;
    for (const auto wanted : {Transformer::Logits::kNone, Transformer::Logits::kNothing}) {
      auto cache = *(*model)->MakeCache(64);
      const std::vector<int> first = {1, 40, 50, 3, 9}, second = {60, 61}, last = {7, 8};
      ASSERT_TRUE(transformer->Forward(first, *cache, wanted).ok());
      ASSERT_TRUE(transformer->Forward(second, *cache, wanted).ok());
      const auto logits = *transformer->Forward(last, *cache, Transformer::Logits::kLast);
      if (expected.empty()) expected.assign(logits.begin(), logits.end());
      EXPECT_EQ(std::vector<float>(logits.begin(), logits.end()), expected) << name;
    }
  }
  EXPECT_GT(families, 50);
}

// Compares float weights, where no activation is quantized: exp and the order of attention's sums
// differ in the last bits, and a rounding of the f16 cache may flip (2^-11 of an element).
TEST(Transformer, EveryIsaIsNearTheReference) {
  const std::string folder = SOURCE_DIR "/tests/golden/models/tidepool/target";
  const auto reference = AllLogits(1, 300, "reference", folder);
  for (const char* isa : {"avx2", "avxvnni", "avx512", "amx", "neon", "i8mm"}) {
    if (kernels::CpuOps(isa) == nullptr) continue;
    const auto got = AllLogits(2, 300, isa, folder);
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], reference[i], 5e-3) << isa;
  }
}

TEST(Transformer, Avx2AndAvx512GiveTheSameBits) {
  if (kernels::CpuOps("avx2") == nullptr || kernels::CpuOps("avx512") == nullptr)
    GTEST_SKIP() << "this processor has not both";
  EXPECT_EQ(AllLogits(2, 300, "avx2"), AllLogits(2, 300, "avx512"));
}

TEST(Transformer, RollingBackIsSettingTheLength) {
  const auto model = load::LoadModel(Options(2, ""));
  const auto transformer = (*model)->MakeTransformer(16, 64);
  auto cache = *(*model)->MakeCache(64);
  const std::vector<int> start = {1, 400, 500}, wrong = {600, 601}, right = {700};
  ASSERT_TRUE(transformer->Forward(start, *cache, Transformer::Logits::kNone).ok());
  ASSERT_TRUE(transformer->Forward(wrong, *cache, Transformer::Logits::kNone).ok());
  cache->SetLength(3);
  const auto after = *transformer->Forward(right, *cache, Transformer::Logits::kLast);
  const std::vector<float> rolled_back(after.begin(), after.end());
  cache->Clear();
  ASSERT_TRUE(transformer->Forward(start, *cache, Transformer::Logits::kNone).ok());
  const auto fresh = *transformer->Forward(right, *cache, Transformer::Logits::kLast);
  EXPECT_EQ(rolled_back, std::vector<float>(fresh.begin(), fresh.end()));
}

TEST(LoadModel, AnUnknownIsaIsRefused) {
  const auto model = load::LoadModel(Options(1, "sse9"));
  EXPECT_EQ(model.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace thermocline::exec
