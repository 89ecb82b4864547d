#include "engine/predictor/side_car.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "engine/base/file.h"
#include "engine/base/hash.h"

namespace thermocline::predictor {
namespace {

const std::string kHash(32, 'a');

class SideCarTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    ASSERT_TRUE(WriteSideCar(path_, Full()).ok());
    bytes_ = *base::ReadFileToString(path_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  SideCarIdentity Identity() const {
    return {.model_hash = kHash, .hidden_size = 8, .intermediate_size = 20, .num_hidden_layers = 3};
  }

  // A side-car with all parts in the middle layer, and fewer in the others.
  SideCar Full() const {
    SideCar s = EmptySideCar(Identity());
    s.profiled_tokens = 1234;
    LayerSideCar& layer = s.layers[1];
    for (std::uint32_t i = 0; i < 20; ++i) {
      layer.activations.push_back(i * 77);
      layer.down_norms.push_back(0.5F * static_cast<float>(i));
    }
    layer.alpha = 1.03;
    layer.sign = SignCalibration{.slices = 3,
                                 .planes = 2,
                                 .columns = {0, 3, 7},
                                 .thresholds = std::vector<std::int32_t>(20, -7),
                                 .recall = 0.97,
                                 .predicted_share = 0.2,
                                 .active_share = 0.1,
                                 .missed_mass = 0.01};
    layer.threshold = 0.25F;
    layer.threshold_kept_mass = 0.99;
    layer.low_rank = LowRankPredictor{.rank = 4,
                                      .before_norm = true,
                                      .threshold = -0.125F,
                                      .fc1 = std::vector<std::uint16_t>(4 * 8, 0x3C00),
                                      .fc2 = std::vector<std::uint16_t>(20 * 4, 0xB800),
                                      .recall = 0.95,
                                      .predicted_share = 0.15,
                                      .active_share = 0.1,
                                      .settings = "text \"a\""};
    s.layers[2].alpha = 1;
    s.input_points = {{.share = 0.2, .kl = 0.01, .perplexity_ratio = 1.01},
                      {.share = 0.4, .kl = 0.04, .perplexity_ratio = 1.03}};
    layer.inputs = InputCalibration{.weights = {std::vector<float>(8, 0.5F), {}, {}, {}},
                                    .thresholds = std::vector<float>(8, 0.25F)};
    return s;
  }

  Status Read(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return ReadSideCar(path_, Identity()).status();
  }

  // Reads the file with an edit and a corrected checksum, as from a faulty writer.
  Status ReadEdited(const std::string& from, const std::string& to) {
    EXPECT_EQ(from.size(), to.size());
    std::string bytes = bytes_;
    const std::size_t at = bytes.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    bytes.replace(at, from.size(), to);
    base::Hasher hasher;
    hasher.Add(std::string_view(bytes).substr(0, bytes.size() - 16));
    const base::Hash128 hash = hasher.Digest();
    std::memcpy(bytes.data() + bytes.size() - 16, &hash.low, 8);
    std::memcpy(bytes.data() + bytes.size() - 8, &hash.high, 8);
    return Read(bytes);
  }

  Status Write(const std::function<void(SideCar&)>& change) {
    SideCar s = Full();
    change(s);
    return WriteSideCar(path_, s);
  }

  static void ExpectSays(const Status& status, StatusCode code,
                         const std::vector<std::string>& words) {
    EXPECT_EQ(status.code(), code) << status.message();
    for (const std::string& word : words)
      EXPECT_NE(status.message().find(word), std::string::npos)
          << word << " in " << status.message();
  }

  const std::string folder_ =
      testing::TempDir() + "thermocline side car " + std::to_string(::getpid());
  const std::string path_ = folder_ + "/model.gguf.tcp";
  std::string bytes_;
};

TEST_F(SideCarTest, WhatIsWrittenIsRead) {
  const auto read = ReadSideCar(path_, Identity());
  ASSERT_TRUE(read.ok()) << read.status().message();
  const SideCar expected = Full();
  EXPECT_EQ(read->model_hash, kHash);
  ASSERT_EQ(read->input_points.size(), 2U);
  EXPECT_EQ(read->input_points[1].kl, 0.04);
  EXPECT_EQ(read->input_points[1].perplexity_ratio, 1.03);
  EXPECT_EQ(read->layers[1].inputs->weights, expected.layers[1].inputs->weights);
  EXPECT_EQ(read->layers[1].inputs->thresholds, expected.layers[1].inputs->thresholds);
  EXPECT_EQ(read->profiled_tokens, 1234);
  ASSERT_EQ(read->layers.size(), 3U);
  EXPECT_FALSE(read->layers[0].low_rank.has_value());
  EXPECT_EQ(read->layers[2].alpha, 1.0);
  const LayerSideCar &a = read->layers[1], &b = expected.layers[1];
  EXPECT_EQ(a.activations, b.activations);
  EXPECT_EQ(a.down_norms, b.down_norms);
  EXPECT_EQ(a.sign->columns, b.sign->columns);
  EXPECT_EQ(a.alpha, b.alpha);
  EXPECT_EQ(a.threshold, b.threshold);
  EXPECT_EQ(a.threshold_kept_mass, b.threshold_kept_mass);
  EXPECT_EQ(a.sign->slices, 3);
  EXPECT_EQ(a.sign->planes, 2);
  EXPECT_EQ(a.sign->thresholds, b.sign->thresholds);
  EXPECT_EQ(a.sign->missed_mass, 0.01);
  EXPECT_EQ(a.low_rank->rank, 4);
  EXPECT_TRUE(a.low_rank->before_norm);
  EXPECT_EQ(a.low_rank->threshold, -0.125F);
  EXPECT_EQ(a.low_rank->fc1, b.low_rank->fc1);
  EXPECT_EQ(a.low_rank->fc2, b.low_rank->fc2);
  EXPECT_EQ(a.low_rank->active_share, 0.1);
  EXPECT_EQ(a.low_rank->settings, "text \"a\"");
}

TEST_F(SideCarTest, TheDefaultPathIsBesideTheModel) {
  EXPECT_EQ(SideCarPath("/a/model.gguf"), "/a/model.gguf.tcp");
  EXPECT_EQ(SideCarPath("/a/folder/"), "/a/folder.tcp");
}

TEST_F(SideCarTest, NoFileIsAnEmptyOneOnlyWhereAskedFor) {
  const std::string nowhere = folder_ + "/none.tcp";
  EXPECT_EQ(ReadSideCar(nowhere, Identity()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadSideCarOrEmpty(nowhere, Identity())->layers.size(), 3U);
}

TEST_F(SideCarTest, AnotherModelsIsRefusedWithBothHashes) {
  SideCarIdentity other = Identity();
  other.model_hash = std::string(32, 'b');
  ExpectSays(ReadSideCar(path_, other).status(), StatusCode::kFailedPrecondition,
             {path_, kHash, other.model_hash, "side-car"});
}

TEST_F(SideCarTest, OtherSizesAreRefusedByName) {
  SideCarIdentity other = Identity();
  other.intermediate_size = 24;
  ExpectSays(ReadSideCar(path_, other).status(), StatusCode::kFailedPrecondition,
             {path_, "intermediate_size is 20", "24"});
  other = Identity();
  other.hidden_size = 16;
  ExpectSays(ReadSideCar(path_, other).status(), StatusCode::kFailedPrecondition,
             {"hidden_size is 8", "16"});
  other = Identity();
  other.num_hidden_layers = 4;
  ExpectSays(ReadSideCar(path_, other).status(), StatusCode::kFailedPrecondition,
             {"num_hidden_layers is 3", "4"});
}

TEST_F(SideCarTest, TruncationAtAnyByteIsRefused) {
  for (std::size_t length = 0; length < bytes_.size(); ++length) {
    const Status status = Read(bytes_.substr(0, length));
    ASSERT_EQ(status.code(), StatusCode::kDataLoss) << length << ": " << status.message();
    ASSERT_NE(status.message().find(path_), std::string::npos);
  }
  EXPECT_EQ(Read(bytes_ + "x").code(), StatusCode::kDataLoss);
}

TEST_F(SideCarTest, AFlippedBitInAnyByteIsRefused) {
  for (std::size_t at = 0; at < bytes_.size(); ++at) {
    std::string damaged = bytes_;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    const Status status = Read(damaged);
    ASSERT_FALSE(status.ok()) << at;
    ASSERT_NE(status.message().find(path_), std::string::npos) << status.message();
  }
}

TEST_F(SideCarTest, ANewerVersionIsRefused) {
  std::string newer = bytes_;
  newer[8] = 2;
  ExpectSays(Read(newer), StatusCode::kUnimplemented, {"version is 2", "reads 1"});
}

TEST_F(SideCarTest, HeadersThatCannotBeAreRefusedBeforeTheyAreUsed) {
  ExpectSays(ReadEdited("\"rank\":4", "\"rank\":5"), StatusCode::kInvalidArgument,
             {"layer 1: low_rank.fc1 has 32 elements, expected 40"});
  ExpectSays(ReadEdited("\"count\":80", "\"count\":-1"), StatusCode::kInvalidArgument,
             {"low_rank.fc2.count is -1"});
  ExpectSays(ReadEdited("\"activations\":{\"at\":0", "\"activations\":{\"at\":8"),
             StatusCode::kInvalidArgument, {"activations", "multiple of 64"});
  ExpectSays(ReadEdited("\"profiled_tokens\":1234", "\"profiled_tokens\":-123"),
             StatusCode::kInvalidArgument, {"profiled_tokens is -123"});
  ExpectSays(ReadEdited("\"alpha\":1.03", "\"alpha\":true"), StatusCode::kInvalidArgument,
             {"alpha is true"});
  ExpectSays(ReadEdited("\"alpha\":1.03", "\"alpha\":9e99"), StatusCode::kInvalidArgument,
             {"alpha is 9e+99, expected 0 to 100"});
  ExpectSays(ReadEdited("\"slices\":3", "\"slices\":6"), StatusCode::kInvalidArgument,
             {"sign.slices is 6"});
  ExpectSays(ReadEdited("\"planes\":2", "\"planes\":3"), StatusCode::kInvalidArgument,
             {"sign.planes is 3"});
  ExpectSays(ReadEdited("\"layers\":[{},", "\"layers\":[   "), StatusCode::kInvalidArgument,
             {"layers has 2 entries, expected 3"});
  ExpectSays(ReadEdited("\"layers\":[{", "\"layers\":{{"), StatusCode::kInvalidArgument,
             {path_, "invalid JSON"});
  ExpectSays(ReadEdited("{\"at\":512,\"count\":80}", "{\"at\":960,\"count\":80}"),
             StatusCode::kInvalidArgument, {"low_rank.fc2 lies at 960", "outside"});
  ExpectSays(ReadEdited("\"threshold\":-0.125", "\"threshold\":-1e308"),
             StatusCode::kInvalidArgument, {"low_rank.threshold is -1"});
}

TEST_F(SideCarTest, WhatCannotBeReadIsNotWritten) {
  const float nan = std::nanf("");
  const std::vector<std::pair<std::function<void(SideCar&)>, std::string>> cases = {
      {[&](SideCar& s) { s.layers[1].down_norms[3] = nan; }, "layer 1: down_norms[3] is NaN"},
      {[&](SideCar& s) { s.layers[1].threshold = INFINITY; }, "layer 1: threshold is inf"},
      {[&](SideCar& s) { s.layers[1].alpha = nan; }, "alpha is nan"},
      {[&](SideCar& s) { s.layers[1].alpha = -1; }, "alpha is -1"},
      {[&](SideCar& s) { s.layers[1].low_rank->threshold = nan; }, "low_rank.threshold"},
      {[&](SideCar& s) { s.layers[1].low_rank->fc1[7] = 0x7C00; }, "fc1[7] is NaN or infinite"},
      {[&](SideCar& s) { s.layers[1].low_rank->fc2[9] = 0xFE01; }, "fc2[9] is NaN or infinite"},
      {[&](SideCar& s) { s.layers[1].low_rank->fc1.pop_back(); }, "fc1 has 31 elements"},
      {[&](SideCar& s) { s.layers[1].low_rank->rank = 0; }, "low_rank.rank is 0"},
      {[&](SideCar& s) { s.layers[1].sign->thresholds.pop_back(); }, "thresholds has 19"},
      {[&](SideCar& s) { s.layers[1].sign->recall = nan; }, "sign.recall"},
      {[&](SideCar& s) { s.layers[1].sign->columns[1] = 0; }, "sign.columns has 0 after 0"},
      {[&](SideCar& s) { s.layers[1].sign->columns[2] = 8; }, "sign.columns has 8"},
      {[&](SideCar& s) { s.layers[1].sign->columns[0] = -1; }, "sign.columns has -1"},
      {[&](SideCar& s) { s.layers[1].activations.pop_back(); }, "activations has 19"},
      {[&](SideCar& s) { s.layers.pop_back(); }, "layers has 2"},
  };
  for (const auto& [change, words] : cases)
    ExpectSays(Write(change), StatusCode::kInvalidArgument, {path_, words});
  EXPECT_TRUE(ReadSideCar(path_, Identity()).ok()) << "the old file stays";
}

}  // namespace
}  // namespace thermocline::predictor
