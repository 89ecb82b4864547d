// Runs every CUDA kernel, as compiled by nvcc, on the processor: the checks that tests/gpu runs on
// a GPU, with every memory access checked.
#include <gtest/gtest.h>

#include "tests/cuda_emulated/emulated_ops.h"
#include "tests/gpu/checks_dense.h"
#include "tests/gpu/checks_sparse.h"
#include "tests/ptx/runner.h"

namespace thermocline::gpu {
namespace {

class Ptx : public testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() { ran_.clear(); }
  void Expect(const std::vector<Check>& checks) {
    EXPECT_FALSE(checks.empty());
    for (const Check& check : checks) {
      EXPECT_TRUE(check.ok()) << check.name << " " << check.shape << ": " << check.error << " > "
                              << check.tolerance;
    }
    for (const std::string& finding : runner_.TakeFindings()) ADD_FAILURE() << finding;
    for (const std::string& name : runner_.run()) ran_.insert(GetParam() + (" " + name));
  }
  static const kernels::DeviceOps& Ops() { return kernels::EmulatedOps(); }

  ptx::Runner runner_{std::string(THERMOCLINE_PTX) + "/" + GetParam()};
  static inline std::set<std::string> ran_;
};

TEST_P(Ptx, Gemm) { Expect(CheckGemm(Ops(), false)); }
TEST_P(Ptx, Elementwise) { Expect(CheckElementwise(Ops())); }
TEST_P(Ptx, Rotate) { Expect(CheckRotate(Ops())); }
TEST_P(Ptx, Attention) { Expect(CheckAttention(Ops(), false)); }
TEST_P(Ptx, Replay) { Expect(CheckReplay(Ops())); }
TEST_P(Ptx, SignPrediction) { Expect(CheckSignPrediction(Ops(), false)); }
TEST_P(Ptx, Lists) { Expect(CheckLists(Ops())); }
TEST_P(Ptx, GemmRows) { Expect(CheckGemmRows(Ops(), false)); }
TEST_P(Ptx, Epilogues) { Expect(CheckEpilogues(Ops())); }
TEST_P(Ptx, SumRows) { Expect(CheckSumRows(Ops(), false)); }
TEST_P(Ptx, HandOff) { Expect(CheckHandOff(Ops())); }
TEST_P(Ptx, Runtime) {
  EXPECT_EQ(Ops().runtime.probe(), 0);
  Expect(CheckRead(Ops()));
}
TEST_P(Ptx, ZEveryKernelHasRun) {
  const auto* const tests = testing::UnitTest::GetInstance();
  if (tests->test_to_run_count() != tests->total_test_count())
    GTEST_SKIP() << "only some tests were asked for";
  for (const std::string& name : runner_.kernels())
    EXPECT_TRUE(ran_.contains(GetParam() + (" " + name))) << name << " has not run";
}

INSTANTIATE_TEST_SUITE_P(Architectures, Ptx, testing::Values("sm_80", "sm_90"));

}  // namespace
}  // namespace thermocline::gpu
