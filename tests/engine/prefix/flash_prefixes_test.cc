// Prefixes on flash: what is restored has the bytes of what was kept, of each kind of layer, and
// nobody finds what is another's.
#include "engine/prefix/flash_prefixes.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "engine/model/open/open_model.h"

namespace thermocline::prefix {
namespace {

const std::string kModels = SOURCE_DIR "/tests/golden/architectures/";

std::vector<int> Numbers(int first, int count) {
  std::vector<int> out;
  for (int i = 0; i < count; ++i) out.push_back(first + i);
  return out;
}

// A pool whose blocks are filled as if they were computed: with bytes that depend on all tokens up
// to their end.
class FlashPrefixesTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '_');
    folder_ = testing::TempDir() + "prefixes_" + name;
    std::filesystem::remove_all(folder_);
    auto file = model::OpenModelFile(kModels + GetParam() + "/model.gguf");
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = *std::move(file);
    MakePool();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void MakePool(int blocks = 64) {
    const model::ModelConfig& config = file_->config;
    pool_ = *nn::KvPool::Create({.config = config,
                                 .blocks = blocks,
                                 .window_blocks = config.sliding_window > 0 ? blocks : 0,
                                 .states = 8,
                                 .pending = 4});
  }
  std::unique_ptr<FlashPrefixes> Open(const std::string& fingerprint = "model",
                                      std::int64_t bytes = 64 << 20) {
    auto out = FlashPrefixes::Open(
        *pool_,
        {.folder = folder_, .bytes_max = bytes, .fingerprint = fingerprint, .tokens_min = 64});
    EXPECT_TRUE(out.ok()) << out.status().message();
    return out.ok() ? *std::move(out) : nullptr;
  }
  static std::uint8_t ByteAt(std::span<const int> tokens, int block, nn::KvKind kind) {
    unsigned sum = kind == nn::KvKind::kWindow ? 11 : 7;
    for (const int token :
         tokens.first(std::min<std::size_t>(tokens.size(), (block + 1) * kernels::kKvBlock)))
      sum = sum * 31 + token;
    return static_cast<std::uint8_t>(sum >> 3);
  }
  // Computes tokens from cache.length() on.
  void Compute(nn::KvCache& cache, std::span<const int> tokens) {
    const int first = cache.length(), count = static_cast<int>(std::ssize(tokens)) - first;
    ASSERT_TRUE(cache.Reserve(count));
    cache.Advance(count);
    for (int b = first / kernels::kKvBlock; b < nn::BlocksFor(cache.length()); ++b) {
      for (const nn::KvKind kind : pool_->kinds())
        std::memset(pool_->data(kind, cache.block(b)[kind]), ByteAt(tokens, b, kind),
                    pool_->block_bytes(kind));
    }
    if (!pool_->states().layout().any()) return;
    std::fill(cache.state().begin(), cache.state().end(), static_cast<float>(cache.length()));
    cache.SetStateLength(cache.length());
  }
  void CheckBytes(const nn::KvCache& cache, std::span<const int> tokens) {
    for (int b = 0; b < cache.length() / kernels::kKvBlock; ++b) {
      for (const nn::KvKind kind : pool_->kinds()) {
        const int block = cache.block(b)[kind];
        if (block < 0) continue;  // a window that no later token sees
        const std::uint8_t want = ByteAt(tokens, b, kind);
        const std::uint8_t* data = pool_->data(kind, block);
        EXPECT_TRUE(std::all_of(data, data + pool_->block_bytes(kind), [=](std::uint8_t v) {
          return v == want;
        })) << b;
      }
    }
    if (cache.has_state()) {
      EXPECT_EQ(cache.state().front(), static_cast<float>(cache.length()));
      EXPECT_EQ(cache.state().back(), static_cast<float>(cache.length()));
    }
  }
  void KeepNew(FlashPrefixes& flash, const std::vector<int>& tokens, std::string_view owner = "") {
    nn::KvCache cache(*pool_, 2048);
    Compute(cache, tokens);
    flash.Keep(owner, tokens, cache);
  }
  // Restores what there is of `tokens`; returns the number of tokens.
  int Restored(FlashPrefixes& flash, const std::vector<int>& tokens, std::string_view owner = "") {
    nn::KvCache cache(*pool_, 2048);
    auto found = flash.Find(owner, tokens, cache);
    while (found.has_value()) {
      EXPECT_TRUE(pool_->HasFree(FlashPrefixes::Wanted(*found)));
      if (flash.Restore(*found, cache) != FlashPrefixes::Progress::kMore) break;
    }
    CheckBytes(cache, tokens);
    if (cache.length() > 0 && cache.length() < std::ssize(tokens)) Compute(cache, tokens);
    return found.has_value() ? static_cast<int>(found->end) : 0;
  }
  // Blocks of the pool that nobody holds after the cache is closed.
  void ExpectAllFree() {
    EXPECT_EQ(pool_->free_blocks(), pool_->blocks());
    EXPECT_EQ(pool_->states().free_states(), pool_->states().states());
  }

  std::string folder_;
  std::unique_ptr<model::ModelFile> file_;
  std::unique_ptr<nn::KvPool> pool_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, FlashPrefixesTest,
                         testing::Values("llama3", "gemma3", "lfm2", "qwen35"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(FlashPrefixesTest, OutliveTheProcess) {
  const auto tokens = Numbers(1, 700);
  KeepNew(*Open(), tokens);
  const bool states = pool_->states().layout().any();
  const auto flash = Open();
  auto longer = tokens;
  longer.resize(900, 5);
  // Whole blocks; or, where layers are recurrent, the state at the end.
  EXPECT_EQ(Restored(*flash, longer), states ? 700 : 640);
  EXPECT_EQ(Restored(*flash, tokens), states ? 0 : 640);
  longer[100] = 9;
  EXPECT_EQ(Restored(*flash, longer), states ? 0 : 64);
  longer[10] = 9;
  EXPECT_EQ(Restored(*flash, longer), 0);
}

TEST_P(FlashPrefixesTest, BelongToTheirOwnerAndModel) {
  const auto tokens = Numbers(1, 400);
  auto longer = tokens;
  longer.push_back(3);
  KeepNew(*Open("model"), tokens, "anna");
  EXPECT_GT(Restored(*Open("model"), longer, "anna"), 300);
  EXPECT_EQ(Restored(*Open("model"), longer, "bert"), 0);
  EXPECT_EQ(Restored(*Open("model"), longer, ""), 0);
  EXPECT_EQ(Restored(*Open("other"), longer, "anna"), 0);
}

TEST_P(FlashPrefixesTest, ADamagedBlockIsNeverRestored) {
  const auto tokens = Numbers(1, 600);
  auto longer = tokens;
  longer.push_back(3);
  KeepNew(*Open(), tokens);
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    if (entry.path().extension() != ".slots") continue;
    std::filesystem::resize_file(entry.path(), entry.file_size() / 2);
  }
  const auto flash = Open();
  nn::KvCache cache(*pool_, 2048);
  auto found = flash->Find("", longer, cache);
  ASSERT_TRUE(found.has_value());
  FlashPrefixes::Progress progress = FlashPrefixes::Progress::kMore;
  while (progress == FlashPrefixes::Progress::kMore) progress = flash->Restore(*found, cache);
  EXPECT_EQ(progress, FlashPrefixes::Progress::kFailed);
  EXPECT_LT(cache.length(), 500);
  CheckBytes(cache, longer);
  EXPECT_GT(flash->figures().damaged, 0);
}

TEST_P(FlashPrefixesTest, GiveTheirMemoryBack) {
  {
    const auto flash = Open();
    for (int i = 0; i < 20; ++i) {
      flash->MakeRoom({40, pool_->window() > 0 ? 40 : 0, 1});
      KeepNew(*flash, Numbers(1000 * i, 500));
    }
  }
  ExpectAllFree();
}

// Blocks of a request whose memory was wanted were given up while the disk was idle.
TEST_P(FlashPrefixesTest, MemoryIsFreeOnceItIsWritten) {
  const auto slots =
      store::SlotFile::Open({.path = folder_ + ".blocks",
                             .slot_bytes = static_cast<std::size_t>(pool_->block_bytes()),
                             .bytes_max = 64 << 20});
  ASSERT_TRUE(slots.ok()) << slots.status().message();
  {
    PrefixWriter writer(*pool_);
    for (int i = 0; i < pool_->blocks(); ++i) {
      store::SlotKey key{};
      key[1] = static_cast<std::byte>(i + 1);
      const int block = pool_->Take(nn::KvKind::kWhole);
      writer.Enqueue({.file = slots->get(), .key = key, .place = {.parent = key}, .block = block});
      pool_->Release(nn::KvKind::kWhole, block);
    }
    writer.MakeRoom({pool_->blocks(), 0, 0}, std::chrono::minutes(2));
    EXPECT_EQ(writer.counters().dropped_for_room, 0);
    EXPECT_EQ((*slots)->counters().slots, pool_->blocks());
    ExpectAllFree();
  }
  for (const char* ending : {".blocks.table", ".blocks.slots"})
    std::filesystem::remove(folder_ + ending);
}

TEST_P(FlashPrefixesTest, StayWithinTheirBytes) {
  const std::int64_t block = pool_->block_bytes();
  const std::int64_t bytes = 40 * (block + 4096 * 2);
  const auto flash = Open("model", bytes);
  for (int i = 0; i < 20; ++i) {
    KeepNew(*flash, Numbers(1000 * i, 300));
    for (int tries = 0; tries < 500 && pool_->free_blocks() < pool_->blocks(); ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      flash->ReleaseWritten();
    }
  }
  EXPECT_LE(flash->figures().bytes, bytes);
  EXPECT_GT(flash->figures().evicted, 0);
  auto last = Numbers(19'000, 300);
  last.push_back(1);
  if (!pool_->states().layout().any()) {
    EXPECT_EQ(Restored(*flash, last), 256);
  }
}

TEST_P(FlashPrefixesTest, ASecondProcessFindsWhatTheFirstWrote) {
  const auto tokens = Numbers(1, 300);
  auto longer = tokens;
  longer.push_back(3);
  KeepNew(*Open(), tokens);
  const auto first = Open(), second = Open();
  EXPECT_FALSE(first->read_only());
  EXPECT_TRUE(second->read_only());
  EXPECT_GE(Restored(*second, longer), 256);
  KeepNew(*second, Numbers(500, 300));  // is not written
  EXPECT_EQ(second->figures().written_bytes, 0);
}

TEST(PrefixKeys, AreChainsOfAllThatABlockDependsOn) {
  const PrefixKeys keys("secret", "model"), other("secre", "tmodel");
  const auto tokens = Numbers(1, 200);
  const auto chain = keys.Chain("anna", tokens);
  ASSERT_EQ(chain.size(), 4U);
  EXPECT_NE(chain, keys.Chain("bert", tokens));
  EXPECT_NE(chain, other.Chain("anna", tokens));
  EXPECT_EQ(chain[3], PrefixKeys::Block(chain[2], std::span(tokens).subspan(128, 64)));
  EXPECT_NE(chain[3], PrefixKeys::State(chain[2], std::span(tokens).subspan(128, 64)));
  EXPECT_EQ(keys.FileName().size(), 16U);
}

TEST(FolderSecret, IsMadeOnceAndKept) {
  const std::string folder = testing::TempDir() + "secret_folder";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto secret = FolderSecret(folder);
  ASSERT_TRUE(secret.ok()) << secret.status().message();
  EXPECT_EQ(secret->size(), 32U);
  EXPECT_EQ(*FolderSecret(folder), *secret);
  std::filesystem::resize_file(folder + "/secret", 5);
  const auto fresh = FolderSecret(folder);  // a damaged cache does not stop a start
  ASSERT_TRUE(fresh.ok()) << fresh.status().message();
  EXPECT_NE(*fresh, *secret);
  EXPECT_EQ(*FolderSecret(folder), *fresh);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace thermocline::prefix
