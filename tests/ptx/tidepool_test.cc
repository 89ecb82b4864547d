// A whole model with every kernel as PTX: its text is the processor's.
#include "tests/engine/gpu/on_device.h"
#include "tests/ptx/runner.h"

namespace thermocline::gpu {
namespace {

constexpr float kTolerance =
    0.02F;  // as tests/engine/gpu/device_test.cc: attention and SiLU differ

class PtxTidepool : public OnDevice {
 protected:
  // `chosen`: neurons are selected by activations that attention's last bits may flip, so logits
  // may differ widely although the text does not.
  static void Expect(const exec::How& how, const exec::Where& where, bool chosen = false) {
    constexpr int kPrompt = 9, kTokens = 20;
    const auto plain = exec::Load(how);
    ASSERT_NE(plain, nullptr);
    const Text want = Generate(*plain, kPrompt, kTokens);
    ptx::Runner runner(THERMOCLINE_PTX "/sm_80");
    const auto placed = exec::LoadPlaced(how, where);
    ASSERT_NE(placed, nullptr);
    const Text got = Generate(*placed, kPrompt, kTokens);
    EXPECT_EQ(got.tokens, want.tokens);
    if (!chosen) ExpectNear(got.logits, want.logits, kQuantizedTolerance, "logits");
    for (const std::string& finding : runner.TakeFindings()) ADD_FAILURE() << finding;
    EXPECT_GT(runner.run().size(), 5U);
    std::printf("  %zu kernels of %zu\n", runner.run().size(), runner.kernels().size());
  }
};

TEST_F(PtxTidepool, Dense) { Expect({.path = exec::kTidepool, .modes = "dense"}, {}); }
TEST_F(PtxTidepool, Exact) { Expect({.path = exec::kTidepool, .modes = "exact"}, {}); }
TEST_F(PtxTidepool, ExactWithHalfOfTheNeuronsOnTheProcessor) {
  Expect({.path = exec::kTidepool, .modes = "exact"}, {.every = 2});
}
TEST_F(PtxTidepool, SignWithHalfOfTheNeuronsOnTheProcessor) {
  Expect({.path = exec::kTidepool, .modes = "sign"}, {.every = 2}, true);
}

}  // namespace
}  // namespace thermocline::gpu
