// The sparse CUDA ops, emulated.
#include <gtest/gtest.h>

#include "tests/cuda_emulated/emulated_ops.h"
#include "tests/gpu/checks_sparse.h"

namespace thermocline::gpu {
namespace {

void AllOk(const std::vector<Check>& checks) {
  ASSERT_FALSE(checks.empty());
  for (const Check& check : checks)
    EXPECT_TRUE(check.ok()) << check.name << " " << check.shape << ": error " << check.error
                            << ", at most " << check.tolerance;
}

const kernels::DeviceOps& Ops() { return kernels::EmulatedOps(); }

TEST(CudaSparse, SignsPredictAsOnTheCpu) { AllOk(CheckSignPrediction(Ops(), false)); }
TEST(CudaSparse, ListsAreAscendingAndComplete) { AllOk(CheckLists(Ops())); }
TEST(CudaSparse, ProductsOfRowsHaveTheBitsOfTheCpu) { AllOk(CheckGemmRows(Ops(), false)); }
TEST(CudaSparse, NeuronsLiveAndCombineAsOnTheCpu) { AllOk(CheckEpilogues(Ops())); }
TEST(CudaSparse, SumsHaveTheBitsOfTheCpuInAnyPartition) { AllOk(CheckSumRows(Ops(), false)); }
TEST(CudaSparse, TheHandOffSurvivesReplaysAndADeadHost) { AllOk(CheckHandOff(Ops())); }
TEST(CudaSparse, ReadingAddsAllWords) { AllOk(CheckRead(Ops())); }

// Runs the measurement; its figures are the emulator's.
TEST(CudaSparse, SpeedsAreMeasured) {
  const Bandwidth bandwidth = MeasureBandwidth(Ops(), true);
  EXPECT_GT(bandwidth.read_gb_s, 0);
  EXPECT_GT(bandwidth.copy_gb_s, 0);
  const SparseSpeeds measured = MeasureSparse(Ops(), true);
  for (const Speed& speed : measured.speeds) EXPECT_GT(speed.us, 0) << speed.name;
  EXPECT_FALSE(measured.ratios.empty());
  for (const Ratio& ratio : measured.ratios) EXPECT_GT(ratio.sparse_us, 0) << ratio.name;
}

}  // namespace
}  // namespace thermocline::gpu
