// Blocks that one sequence shares with another, in the same pool and in another one.
#include "engine/nn/kv_cache.h"

#include <gtest/gtest.h>

#include "engine/load/loaded_model.h"
#include "engine/model/open/open_model.h"

namespace thermocline::nn {
namespace {

class KvCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto file = model::OpenModelFile(SOURCE_DIR "/config/models/tidepool.gguf");
    ASSERT_TRUE(file.ok());
    for (auto* pool : {&lender_, &pool_})
      *pool = *KvPool::Create({.config = (*file)->config, .blocks = 8});
  }
  // Writes `tokens` tokens, each with its position in its block's first bytes.
  static void Fill(KvCache& cache, int tokens, int from) {
    ASSERT_TRUE(cache.Reserve(tokens));
    for (int i = 0; i < tokens; ++i) {
      const int position = cache.length();
      cache.block_at(position)[position % kernels::kKvBlock] =
          static_cast<std::uint8_t>(from + position);
      cache.Advance(1);
    }
  }
  static int At(const KvCache& cache, int position) {
    return cache.block_data()[position / kernels::kKvBlock][position % kernels::kKvBlock];
  }

  std::unique_ptr<KvPool> lender_, pool_;
};

TEST_F(KvCacheTest, BlocksOfAnotherPoolAreReadWhereTheyAreAndCopiedBeforeTheyAreWritten) {
  KvCache target(*lender_, 300), draft(*pool_, 300);
  Fill(target, 140, 0);
  draft.Share(target, 140);
  EXPECT_EQ(draft.length(), 140);
  EXPECT_EQ(pool_->free_blocks(), 8);
  EXPECT_EQ(lender_->free_blocks(), 5);  // only the target uses them
  for (const int i : {0, 1, 2}) EXPECT_EQ(draft.block_data()[i], target.block_data()[i]);
  EXPECT_EQ(draft.BlocksWanted(1).whole, 1);
  ASSERT_TRUE(draft.Reserve(1));
  EXPECT_EQ(pool_->free_blocks(), 7);  // the partially filled one
  EXPECT_FALSE(draft.TakeCopy().has_value());
  EXPECT_EQ(draft.block_data()[1], target.block_data()[1]);
  EXPECT_NE(draft.block_data()[2], target.block_data()[2]);
  Fill(target, 60, 0);
  Fill(draft, 60, 50);
  for (int i = 0; i < 140; ++i) ASSERT_EQ(At(draft, i), i);
  for (int i = 140; i < 200; ++i) {
    ASSERT_EQ(At(target, i), i);
    ASSERT_EQ(At(draft, i), i + 50);
  }
  draft.SetLength(30);  // into a block of the other pool
  EXPECT_EQ(pool_->free_blocks(), 8);
  Fill(draft, 10, 50);
  EXPECT_EQ(At(draft, 29), 29);
  EXPECT_EQ(At(draft, 30), 80);
  EXPECT_EQ(At(target, 30), 30);
  draft.Clear();
  EXPECT_EQ(pool_->free_blocks(), 8);
  EXPECT_EQ(lender_->free_blocks(), 4);
}

TEST_F(KvCacheTest, APathSharesWhatIsSharedAlready) {
  KvCache target(*lender_, 300), draft(*pool_, 300), path(*pool_, 300);
  Fill(target, 70, 0);
  draft.Share(target, 70);
  Fill(draft, 10, 50);
  path.Share(draft, 75);
  EXPECT_EQ(path.block_data()[0], target.block_data()[0]);
  EXPECT_EQ(path.block_data()[1], draft.block_data()[1]);
  EXPECT_EQ(pool_->free_blocks(), 7);
  Fill(path, 4, 100);
  EXPECT_EQ(pool_->free_blocks(), 6);
  EXPECT_EQ(At(path, 69), 69);
  EXPECT_EQ(At(path, 74), 124);
  EXPECT_EQ(At(path, 75), 175);
  EXPECT_EQ(At(draft, 75), 125);
  path.Clear();
  draft.Clear();
  EXPECT_EQ(pool_->free_blocks(), 8);
}

TEST_F(KvCacheTest, WholeBlocksNeedNoCopy) {
  KvCache target(*lender_, 300), draft(*pool_, 300);
  Fill(target, 128, 0);
  draft.Share(target, 128);
  ASSERT_TRUE(draft.Reserve(1));
  EXPECT_EQ(draft.block_data()[1], target.block_data()[1]);
  EXPECT_EQ(pool_->free_blocks(), 7);
}

}  // namespace
}  // namespace thermocline::nn
