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

}  // namespace
}  // namespace thermocline::load
