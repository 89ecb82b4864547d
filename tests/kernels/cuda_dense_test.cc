// The dense CUDA kernels, emulated, against the CPU's: the checks that tests/gpu runs on a GPU.
#include <gtest/gtest.h>

#include "tests/cuda_emulated/emulated_ops.h"
#include "tests/cuda_emulated/emulator.h"
#include "tests/gpu/checks_dense.h"

namespace thermocline::gpu {
namespace {

void Expect(const std::vector<Check>& checks) {
  EXPECT_FALSE(checks.empty());
  for (const Check& check : checks) {
    EXPECT_TRUE(check.ok()) << check.name << " " << check.shape << ": " << check.error << " > "
                            << check.tolerance;
  }
  EXPECT_EQ(cuda_emulated::Allocated(), 0U);
}

const kernels::DeviceOps& Emulated() { return kernels::EmulatedOps(); }

TEST(CudaDense, Gemm) { Expect(CheckGemm(Emulated(), false)); }
TEST(CudaDense, Elementwise) { Expect(CheckElementwise(Emulated())); }
TEST(CudaDense, Rotate) { Expect(CheckRotate(Emulated())); }
TEST(CudaDense, Attention) { Expect(CheckAttention(Emulated(), false)); }
TEST(CudaDense, Replay) { Expect(CheckReplay(Emulated())); }

TEST(CudaDense, SpeedsAreOfEveryOp) {
  const std::vector<Speed> speeds = MeasureDense(Emulated(), /*tiny=*/true);
  EXPECT_GT(speeds.size(), 30U);
  for (const Speed& speed : speeds) {
    EXPECT_GT(speed.us, 0) << speed.name << " " << speed.shape;
    EXPECT_GT(speed.bytes, 0) << speed.name << " " << speed.shape;
  }
}

}  // namespace
}  // namespace thermocline::gpu
