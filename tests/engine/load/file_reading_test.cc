// Weights read around the page cache have the same bits, in every format.
#include "engine/load/file_reading.h"

#include <cstring>

#include "engine/model/open/open_model.h"
#include "tests/engine/exec/ffn_models.h"

namespace thermocline::load {
namespace {

class FileReadingTest : public exec::FfnModels {};

TEST_F(FileReadingTest, EveryFormatHasTheSameWeights) {
  const std::string plain = Convert(exec::kTidepoolFolder, {.down = model::DownLayout::kColumns});
  base::WorkerPool pool(2);
  // GGUF, a Hugging Face folder with permuted heads, one with a fused matrix of all heads.
  for (const std::string& path : {exec::kTidepool, plain, exec::Family("llama3"),
                                  exec::Family("falcon7"), exec::Family("qwen3")}) {
    const auto cached = *model::OpenModelFile(path), direct = *model::OpenModelFile(path);
    EXPECT_EQ(ConfigureFileReading(FileReading::kCached, true, *cached), "cached");
    const std::string how = ConfigureFileReading(FileReading::kDirect, false, *direct);
    EXPECT_TRUE(how == "direct" || how == "dropped") << how;
    const auto want = *model::LoadWeights(*cached, pool, {}),
               got = *model::LoadWeights(*direct, pool, {});
    ASSERT_EQ(got->memory.size(), want->memory.size()) << path;
    EXPECT_EQ(std::memcmp(got->memory.data(), want->memory.data(), want->memory.size()), 0) << path;
  }
}

TEST_F(FileReadingTest, AutoReadsDirectlyWhereMemoryIsShared) {
  auto file = *model::OpenModelFile(exec::kTidepool);
  EXPECT_EQ(ConfigureFileReading(FileReading::kAuto, false, *file), "cached");
  EXPECT_NE(ConfigureFileReading(FileReading::kAuto, true, *file), "cached");
}

TEST_F(FileReadingTest, AModelSaysHowItWasRead) {
  LoadOptions options;
  options.model.path = exec::kTidepool;
  options.model.threads = 1;
  EXPECT_EQ((*LoadModel(options))->weights_read, "cached");
  options.model.reading = FileReading::kDirect;
  EXPECT_NE((*LoadModel(options))->weights_read, "cached");
}

// A drain waited for the whole load of another model.
TEST_F(FileReadingTest, ALoadEndsWhenItIsCancelled) {
  const std::atomic<bool> cancelled{true};
  LoadOptions options;
  options.model.path = exec::kTidepool;
  options.cancelled = &cancelled;
  EXPECT_EQ(LoadModel(options).status().code(), StatusCode::kCancelled);
}

// Reading ahead changes no bits, and ends with its object in the middle of a file.
TEST_F(FileReadingTest, ReadingAheadChangesNothing) {
  const auto file = *model::OpenModelFile(exec::kTidepool);
  EXPECT_TRUE(MayReadAhead({}, *file));
  EXPECT_FALSE(MayReadAhead({.reading = FileReading::kDirect}, *file));
  base::WorkerPool pool(2);
  const auto want = *model::LoadWeights(*file, pool, {});
  for (int i = 0; i < 20; ++i) const ReadAhead ended_at_once(*file);
  const ReadAhead ahead(*file);
  const auto got = *model::LoadWeights(*file, pool, {});
  EXPECT_EQ(std::memcmp(got->memory.data(), want->memory.data(), want->memory.size()), 0);
}

}  // namespace
}  // namespace thermocline::load
