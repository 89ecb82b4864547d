#include "engine/base/system_memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace thermocline::base {
namespace {

// The quota according to these files below a temporary root.
double QuotaOf(const std::map<std::string, std::string>& files) {
  const std::string root = ::testing::TempDir() + "/quota";
  std::filesystem::remove_all(root);
  for (const auto& [name, text] : files) {
    const std::filesystem::path path = root + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  return ProcessorQuota(root);
}

TEST(ProcessorQuota, F08_IsTheLeastOfAllGroupsOfBothVersions) {
  EXPECT_TRUE(std::isinf(QuotaOf({})));
  const std::string two = "proc/self/cgroup", cpu = "sys/fs/cgroup/";
  EXPECT_DOUBLE_EQ(QuotaOf({{two, "0::/pod/app\n"}, {cpu + "pod/app/cpu.max", "150000 100000\n"}}),
                   1.5);
  EXPECT_DOUBLE_EQ(QuotaOf({{two, "0::/pod/app\n"},
                            {cpu + "pod/app/cpu.max", "max 100000\n"},
                            {cpu + "pod/cpu.max", "50000 100000\n"}}),
                   0.5);
  EXPECT_TRUE(std::isinf(QuotaOf({{two, "0::/\n"}, {cpu + "cpu.max", "max 100000\n"}})));
  EXPECT_DOUBLE_EQ(QuotaOf({{two, "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n"},
                            {cpu + "cpu/cpu.cfs_quota_us", "100000\n"},
                            {cpu + "cpu/cpu.cfs_period_us", "50000\n"}}),
                   2);
  EXPECT_TRUE(std::isinf(QuotaOf({{two, "4:cpu:/\n"},
                                  {cpu + "cpu/cpu.cfs_quota_us", "-1\n"},
                                  {cpu + "cpu/cpu.cfs_period_us", "100000\n"}})));
}

TEST(UsableProcessors, AreAtLeastOne) { EXPECT_GE(UsableProcessors(), 1); }

}  // namespace
}  // namespace thermocline::base
