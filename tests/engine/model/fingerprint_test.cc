#include "engine/model/fingerprint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/model/open/open_model.h"

namespace thermocline::model {
namespace {

const std::string kModels = SOURCE_DIR "/config/models/";

std::string Of(const std::string& path) {
  const auto file = OpenModelFile(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  const auto print = Fingerprint(**file);
  EXPECT_TRUE(print.ok()) << print.status().message();
  return *print;
}

TEST(Fingerprint, IsOfTheModelNotOfThePath) {
  const std::string copy =
      testing::TempDir() + "fingerprint " + std::to_string(::getpid()) + ".gguf";
  std::filesystem::copy_file(kModels + "tidepool.gguf", copy);
  const std::string print = Of(copy);
  EXPECT_EQ(print, Of(kModels + "tidepool.gguf"));
  EXPECT_EQ(print.size(), 32U);
  EXPECT_EQ(print.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(print, Of(kModels + "tidepool-draft.gguf"));
  std::filesystem::remove(copy);
}

TEST(Fingerprint, ReadsFoldersAndCheckpoints) {
  const std::string golden = SOURCE_DIR "/tests/golden/models/";
  EXPECT_NE(Of(golden + "tidepool/target"), Of(kModels + "tidepool.gguf"));
  EXPECT_EQ(Of(golden + "stories260K/stories260K.bin").size(), 32U);
}

// Returns the fingerprint of a model with one matrix, whose rows have different values. Those of
// `changed_row` are raised by 0.5; -1: of no row.
std::string OfRows(const std::string& name, int rows, int changed_row) {
  ModelFile file;
  file.AddMatrix(name, rows, 64, [=](std::int64_t row, std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(row) + (row == changed_row ? 0.5F : 0.0F);
    return OkStatus();
  });
  return *Fingerprint(file);
}

TEST(Fingerprint, NamesShapesAndEndsCount) {
  const std::string print = OfRows("a", 1000, -1);
  EXPECT_EQ(print, OfRows("a", 1000, -1));
  EXPECT_NE(print, OfRows("b", 1000, -1));
  EXPECT_NE(print, OfRows("a", 1001, -1));
  EXPECT_NE(print, OfRows("a", 1000, 0));
  EXPECT_NE(print, OfRows("a", 1000, 999));
  EXPECT_EQ(print, OfRows("a", 1000, 500)) << "8 KiB of a tensor are read, not all";
}

}  // namespace
}  // namespace thermocline::model
