// Compares down projections that are transposed on loading with files in that layout.
#include "engine/model/weights/down_layout.h"

#include <cmath>
#include <cstring>

#include "engine/load/mode_tuner.h"
#include "tests/engine/exec/ffn_models.h"

namespace thermocline::load {
namespace {

using kernels::DType;
using model::DownLayout;

class DownLayoutTest : public exec::FfnModels {
 protected:
  // Tidepool in a type, with the down projection along columns.
  std::string Columns(DType type) const {
    return Convert(exec::kTidepoolFolder, {.type = type, .down = DownLayout::kColumns}, "columns");
  }
  static std::unique_ptr<LoadedModel> LoadAs(const std::string& path, DownInMemory down,
                                             const char* modes = "exact") {
    return exec::Load({.path = path, .modes = modes, .threads = 2, .down = down});
  }
};

TEST_F(DownLayoutTest, RowsAreThoseThatConvertWrites) {
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    SCOPED_TRACE(kernels::Traits(type).name);
    const std::string path = Columns(type);
    const auto turned = LoadAs(path, DownInMemory::kRows);
    const auto written =
        LoadAs(Convert(path, {.type = type, .down = DownLayout::kRows}, "rows"), {});
    for (std::size_t l = 0; l < turned->weights->layers.size(); ++l) {
      const kernels::RowMatrix &mine = turned->weights->layers[l].down_rows,
                               &theirs = written->weights->layers[l].down_rows;
      ASSERT_EQ(mine.bytes(), theirs.bytes());
      EXPECT_EQ(std::memcmp(mine.data, theirs.data, mine.bytes()), 0) << "layer " << l;
      EXPECT_EQ(turned->weights->layers[l].down.bias, nullptr);
    }
    EXPECT_EQ(turned->weights->bytes_per_step(0), written->weights->bytes_per_step(0));
    EXPECT_EQ(exec::LogitsOf(*turned, 12, 1), exec::LogitsOf(*written, 12, 1));
  }
}

// The bias keeps its place, and OPT has no gate.
TEST_F(DownLayoutTest, ABiasStays) {
  const std::string path = exec::Family("opt");
  const auto file = LoadAs(path, DownInMemory::kFile), turned = LoadAs(path, DownInMemory::kRows);
  ASSERT_TRUE(turned->weights->has_down_rows());
  EXPECT_NE(turned->weights->layers[0].down.bias, nullptr);
  const auto expected = exec::LogitsOf(*file, 12, 4), actual = exec::LogitsOf(*turned, 12, 4);
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 1e-4F * (1 + std::abs(expected[i])));
}

TEST_F(DownLayoutTest, WhatCannotBeTurnedIsRefusedByName) {
  const auto model =
      exec::TryLoad({.path = Columns(DType::kQ6_K), .modes = "exact", .down = DownInMemory::kRows});
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kFailedPrecondition);
  for (const char* word : {"layer 0", "q6_k", "convert --down rows"})
    EXPECT_NE(model.status().message().find(word), std::string::npos) << model.status().message();
}

// Below the minimum of 1 MiB a layer, no layout is measured.
TEST_F(DownLayoutTest, AutoLeavesSmallProjections) {
  const std::string path = Columns(DType::kF32);
  const auto chosen = LoadAs(path, DownInMemory::kAuto, "auto"),
             file = LoadAs(path, DownInMemory::kFile, "dense");
  int turned = 0;
  for (const model::LayerWeights& layer : chosen->weights->layers)
    turned += layer.down_rows.rows > 0 ? 1 : 0;
  EXPECT_EQ(turned, 0);
  const auto expected = exec::LogitsOf(*file, 12, 1), actual = exec::LogitsOf(*chosen, 12, 1);
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 1e-4F * (1 + std::abs(expected[i])));
}

TEST_F(DownLayoutTest, AutoGoesByTheTime) {
  const std::string path = Columns(DType::kF16);
  const auto file = LoadAs(path, DownInMemory::kFile, "dense");
  const auto expected = exec::LogitsOf(*file, 12, 1);
  for (const double share_max : {0.0, 1e9}) {
    auto model = LoadAs(path, DownInMemory::kFile, "exact");
    model->SetRows();  // as for every mode
    ASSERT_TRUE(ChooseModes(*model, {.candidates = {},
                                     .also = {},
                                     .may_turn_down = true,
                                     .turned_share_max = share_max,
                                     .turned_bytes_min = 0})
                    .ok());
    for (const model::LayerWeights& layer : model->weights->layers) {
      EXPECT_EQ(layer.down_rows.rows > 0, share_max > 0);
      EXPECT_EQ(layer.down.weight.rows > 0, share_max == 0);
    }
    const auto actual = exec::LogitsOf(*model, 12, 1);
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(actual[i], expected[i], 1e-4F * (1 + std::abs(expected[i])));
  }
}

TEST_F(DownLayoutTest, AutoRoundsNothing) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_0})
    EXPECT_FALSE(LoadAs(Columns(type), DownInMemory::kAuto, "auto")->weights->has_down_rows());
}

}  // namespace
}  // namespace thermocline::load
