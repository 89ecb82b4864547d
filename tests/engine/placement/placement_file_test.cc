// Placement files, machines, and malformed problems.
#include "engine/placement/placement_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "engine/base/file.h"
#include "engine/placement/build_problem.h"
#include "engine/placement/solver.h"
#include "tests/engine/placement/random_problems.h"

namespace thermocline::placement {
namespace {

class PlacementFileTest : public testing::Test {
 protected:
  void SetUp() override {
    Placement placement;
    placement.layers = {{.home_hot = true, .hot = 3, .memory = 4, .flash = 3}, {.hot = 10}};
    const std::vector<std::uint32_t> counts = {5, 9, 5, 0, 1, 7, 0, 2, 5, 0};
    const std::vector<std::vector<std::int32_t>> order(2, ByFrequency(counts));
    file_ = {.model_hash = std::string(32, 'a'),
             .machine_key = "one",
             .profile = "p",
             .hot_bytes = 100,
             .memory_bytes = 200,
             .head_hot = true,
             .layers = TiersOf(placement, order)};
    ASSERT_TRUE(WritePlacement(path_, file_).ok());
  }
  void TearDown() override { std::filesystem::remove(path_); }

  StatusCode Read(const PlacementIdentity& expected) const {
    const auto read = ReadPlacement(path_, expected);
    EXPECT_TRUE(read.ok() || read.status().message().find("plan anew") != std::string::npos);
    return read.status().code();
  }

  const std::string path_ = testing::TempDir() + StrCat("placement", ::getpid(), ".json");
  const PlacementIdentity identity_{std::string(32, 'a'), "one", 2, 10};
  PlacementFile file_;
};

TEST_F(PlacementFileTest, ReadsWhatWasWritten) {
  // The most frequent first, and of equal ones the lower id: 1, 5, 0, 2, 8, 7, 4, 3, 6, 9.
  using enum Tier;
  const std::vector<Tier> tiers = {kHot, kHot,   kMemory, kFlash,  kMemory,
                                   kHot, kFlash, kMemory, kMemory, kFlash};
  const auto read = ReadPlacement(path_, identity_);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->layers[0].tiers, tiers);
  EXPECT_EQ(read->layers[1].tiers, std::vector<Tier>(10, kHot));
  EXPECT_TRUE(read->layers[0].home_hot);
  EXPECT_FALSE(read->layers[1].home_hot);
  EXPECT_TRUE(read->head_hot);
  EXPECT_EQ(read->hot_bytes, 100);
  EXPECT_EQ(read->memory_bytes, 200);
  EXPECT_EQ(read->profile, "p");
}

TEST_F(PlacementFileTest, RefusesAnotherModelMachineOrShape) {
  EXPECT_EQ(Read({std::string(32, 'b'), "one", 2, 10}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Read({std::string(32, 'a'), "two", 2, 10}), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Read({std::string(32, 'a'), "one", 3, 10}), StatusCode::kInvalidArgument);
  EXPECT_EQ(Read({std::string(32, 'a'), "one", 2, 12}), StatusCode::kInvalidArgument);
}

// If any digit or letter changes, the file is rejected.
TEST_F(PlacementFileTest, RefusesDamage) {
  const std::string whole = *base::ReadFileToString(path_);
  int changed = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (std::isalnum(static_cast<unsigned char>(whole[i])) == 0) continue;
    std::string damaged = whole;
    damaged[i] = damaged[i] == '1' ? '2' : '1';
    std::ofstream(path_) << damaged;
    EXPECT_NE(Read(identity_), StatusCode::kOk) << i << ": " << damaged;
    ++changed;
  }
  EXPECT_GT(changed, 200);
  std::ofstream(path_) << whole.substr(0, whole.size() / 2);
  EXPECT_EQ(Read(identity_), StatusCode::kDataLoss);
  std::filesystem::remove(path_);
  EXPECT_EQ(ReadPlacement(path_, identity_).status().code(), StatusCode::kNotFound);
}

TEST(Machine, IsReadAsWritten) {
  Random random(3);
  Machine machine = RandomProblem(random, 1, 1).machine;
  machine.hot = machine.cold;
  machine.name = "a", machine.key = "b";
  const auto read = Machine::FromJson(machine.ToJson());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->hot, machine.hot);
  EXPECT_EQ(read->ToJson().Dump(), machine.ToJson().Dump());
}

TEST(Machine, RefusalsNameTheField) {
  Random random(3);
  Machine machine = RandomProblem(random, 1, 1).machine;
  machine.flash_reads_per_s = machine.flash_bytes_per_s = 5;
  const Json good = machine.ToJson();
  const auto refusal = [&](const char* field, Json value) {
    Json json = good;
    json.Set(field, std::move(value));
    const auto read = Machine::FromJson(json);
    EXPECT_FALSE(read.ok()) << field;
    return read.status().message();
  };
  EXPECT_NE(refusal("sync_s", -1.0).find("sync_s"), std::string::npos);
  EXPECT_NE(refusal("cold", 3).find("cold"), std::string::npos);
  EXPECT_NE(refusal("cold", Json::Object{}).find("cold.dense_bytes_per_s"), std::string::npos);
  EXPECT_NE(refusal("hot_bytes", "much").find("hot_bytes"), std::string::npos);
  EXPECT_NE(refusal("sink_s", 1.0).find("sink_s"), std::string::npos);
  EXPECT_NE(refusal("unified", 1).find("unified"), std::string::npos);
  EXPECT_NE(refusal("flash_reads_per_s", 0.0).find("flash_bytes_per_s"), std::string::npos);
}

TEST(Machine, FlashIsBoundByReadsOrBytes) {
  Machine machine;
  machine.flash_reads_per_s = 1000;
  machine.flash_bytes_per_s = 1e7;
  EXPECT_DOUBLE_EQ(machine.FlashReadTime(100), 1e-3);
  EXPECT_DOUBLE_EQ(machine.FlashReadTime(20000), 2e-3);
}

TEST(Problem, FrequenciesMustBeSharesThatFall) {
  Random random(4);
  Problem problem = RandomProblem(random, 1, 1);
  for (const std::vector<double>& frequency :
       {std::vector<double>{}, {std::nan("")}, {-0.1}, {1.1}, {0.2, 0.3}}) {
    problem.layers[0].frequency = frequency;
    EXPECT_EQ(Solve(problem).status().code(), StatusCode::kInvalidArgument);
  }
  problem.layers[0].frequency = {0.3, 0.2};
  problem.machine.memory_bytes = 0;
  problem.machine.hot_bytes = 0;
  problem.memory_fixed_bytes = 10;
  const auto refused = Solve(problem);
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("What is needed"), std::string::npos);
}

TEST(BuildProblem, ZipfFrequenciesHaveTheirMean) {
  for (const double zipf : {0.0, 0.8, 2.0}) {
    const std::vector<double> f = ZipfFrequencies(1000, 0.1, zipf);
    double mean = 0;
    for (const double each : f) mean += each / 1000;
    EXPECT_NEAR(mean, 0.1, 1e-9) << zipf;
    EXPECT_NEAR(f[999] / f[499], std::pow(0.5, zipf), 1e-9);
  }
}

}  // namespace
}  // namespace thermocline::placement
