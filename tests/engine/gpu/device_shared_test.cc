// Shared steps on an emulated device: whole layers there, neurons on both sides, neurons of layers
// that the processor has.
#include "tests/cuda_emulated/emulated_ops.h"
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
    ASSERT_FALSE(Engine::Load(slow).ok());  // measured, and of no use
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

}  // namespace
}  // namespace thermocline
