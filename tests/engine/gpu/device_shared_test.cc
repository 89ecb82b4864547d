// Shared steps on an emulated device: whole layers there, neurons on both sides, neurons of layers
// whose home is the CPU.
#include "tests/cuda_emulated/emulated_ops.h"
#include "tests/cuda_emulated/emulator.h"
#include "tests/engine/gpu/fast_machine.h"
#include "tests/engine/sched/shared_answers.h"

namespace thermocline {
namespace {

class DeviceShares : public SharedAnswers {
 protected:
  static void SetUpTestSuite() {
    gpu::FastMachine::SetUp();
    EngineConfig slow = Tidepool();
    slow.device_ops = &kernels::EmulatedOps();
    slow.model.hot.device = HotDevice::kCuda;
    (void)Engine::Load(slow);  // measures; on a busy processor the device may even be used
    gpu::FastMachine::MakeFast();
  }
  static void TearDownTestSuite() { gpu::FastMachine::TearDown(); }
};

TEST_P(DeviceShares, GiveEachTheBitsItHasAlone) { GivesEachTheBitsItHasAlone(); }

Place OnDevice(const char* name, const char* modes, std::int64_t bytes) {
  return {name,
          [=](EngineConfig& c) {
            c.device_ops = &kernels::EmulatedOps();
            c.model.hot = {.device = HotDevice::kCuda, .bytes = bytes};
            c.model.ffn.modes = modes;
            c.model.context_length = 128;
            c.serving.prefix_cache_bytes = 1 << 20;
            c.serving.sequences_max = 4;
          },
          2, true};
}

constexpr std::int64_t kMiB = 1 << 20;  // 512 of them are held in reserve

INSTANTIATE_TEST_SUITE_P(Device, DeviceShares,
                         testing::Values(OnDevice("whole_layers", "dense", 0),
                                         OnDevice("some_layers", "exact", 515 * kMiB),
                                         OnDevice("both_sides", "exact", 518 * kMiB),
                                         OnDevice("with_loss", "sign", 518 * kMiB)),
                         [](const auto& tested) { return std::string(tested.param.name); });

// An error of the device in a shared step ends that step's answers by name; a later step has the
// same bits as before.
TEST(DeviceSharedFault, AnErrorEndsTheAnswersOfItsStepAlone) {
  gpu::FastMachine::SetUp();
  EngineConfig config = Tidepool();
  config.device_ops = &kernels::EmulatedOps();
  config.model.hot.device = HotDevice::kCuda;
  config.model.context_length = 128;
  (void)Engine::Load(config);  // measures; on a busy processor the device may even be used
  gpu::FastMachine::MakeFast();
  {
    const auto engine = Load(config);
    const auto want = End(**engine->Submit(Story(1, 5)));
    std::vector<Channel> channels;
    for (std::uint64_t i = 2; i < 4; ++i) channels.push_back(*engine->Submit(Story(i, 40)));
    channels.push_back(SubmitAndThen(*engine, Story(4, 40), [] {
      cuda_emulated::Inject({.after = 40, .error = cudaErrorUnknown, .sticky = true});
    }));
    int failed = 0;
    for (const Channel& channel : channels) {
      const auto end = End(*channel);
      failed += end.error.code() == StatusCode::kUnavailable ? 1 : 0;
      EXPECT_TRUE(end.error.ok() || end.error.code() == StatusCode::kUnavailable)
          << end.error.message();
    }
    EXPECT_GT(failed, 1);
    EXPECT_GT(engine->Stats().steps.shared_steps, 0);
    const auto again = End(**engine->Submit(Story(1, 5)));
    EXPECT_EQ(again.tokens, want.tokens) << again.error.message();
  }
  cuda_emulated::Inject({});
  gpu::FastMachine::TearDown();
}

}  // namespace
}  // namespace thermocline
