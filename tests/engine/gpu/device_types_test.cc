// Types without GPU kernels on an emulated device: weights are converted on loading, or the model
// is rejected.
#include "kernels/quantize.h"
#include "tests/engine/gpu/on_device.h"

namespace thermocline::gpu {
namespace {

using kernels::DType;

class DeviceTypes : public OnDevice {
 protected:
  void TearDown() override {
    cuda_emulated::SetMachine({});
    OnDevice::TearDown();
  }

  // With shared memory, the device gets all that fits, whatever its speed.
  static Result<std::unique_ptr<load::LoadedModel>> Load(const std::string& path, HotDevice device,
                                                         const MemoryOptions& memory = {}) {
    cuda_emulated::SetMachine({.memory_bytes = std::size_t{4} << 30, .unified = true});
    load::LoadOptions options;
    options.model.path = path;
    options.model.threads = 1;
    options.model.kv_type = kernels::KvType::kF32;
    options.model.context_length = exec::kDeviceContext;
    options.model.ffn.modes = "exact";
    options.model.memory = memory;
    options.sizes = {.tokens_max = 16, .logits_max = 16};
    options.model.hot.device = device;
    options.device_ops = &kernels::EmulatedOps();
    return load::LoadModel(options);
  }
};

TEST_F(DeviceTypes, AreConvertedForADevice) {
  for (const DType type :
       {DType::kQ2_K, DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4, DType::kTQ2_0}) {
    for (const auto down : {model::DownLayout::kColumns, model::DownLayout::kRows}) {
      const std::string path = Convert(exec::kTidepoolFolder, {.type = type, .down = down});
      const std::string name = kernels::Traits(type).name;
      const auto cpu = Load(path, HotDevice::kCpu), gpu = Load(path, HotDevice::kCuda);
      ASSERT_TRUE(cpu.ok()) << cpu.status().message();
      ASSERT_TRUE(gpu.ok()) << gpu.status().message();
      ASSERT_NE((*gpu)->device, nullptr);
      EXPECT_EQ((*cpu)->weights->layers[0].q.weight.type, type);
      EXPECT_EQ((*gpu)->weights->layers[0].q.weight.type, kernels::DeviceType(type)) << name;
      const Text want = Generate(**cpu, 6, 6), got = Generate(**gpu, 6, 6);
      if (!kernels::ConvertsExactly(type, kernels::DeviceType(type))) continue;
      EXPECT_EQ(got.tokens, want.tokens) << name;
      ExpectNear(got.logits, want.logits, kQuantizedTolerance, name);
    }
  }
}

TEST_F(DeviceTypes, LoadedForTheCpuAreRefusedByADevice) {
  const std::string path =
      Convert(exec::kTidepoolFolder, {.type = DType::kMXFP4, .down = model::DownLayout::kColumns});
  const auto cpu = Load(path, HotDevice::kCpu);
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  const Status placed = exec::Place(**cpu, {});
  EXPECT_EQ(placed.code(), StatusCode::kUnimplemented);
  EXPECT_NE(placed.message().find("mxfp4"), std::string::npos) << placed.message();
}

// A bundle keeps the file's types, and the device would read its rows.
TEST_F(DeviceTypes, OnFlashLeaveTheModelToTheCpu) {
  const std::string path = Convert(exec::kTidepoolFolder, {.type = DType::kQ3_K});
  const std::string bundle = folder_ + "/model.tcb";
  exec::PackNeurons(path, bundle);
  const MemoryOptions memory{.ffn_share = 0.5, .bundle = bundle};
  const auto whole = Load(path, HotDevice::kCpu);
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  const auto any = Load(path, HotDevice::kAuto, memory);
  ASSERT_TRUE(any.ok()) << any.status().message();
  EXPECT_EQ((*any)->device, nullptr);
  ASSERT_NE((*any)->flash, nullptr);
  EXPECT_NE((*any)->hot.fallback.find("q3_k"), std::string::npos) << (*any)->hot.fallback;
  EXPECT_EQ(Generate(**any, 6, 6).logits, Generate(**whole, 6, 6).logits);
  const auto asked = Load(path, HotDevice::kCuda, memory);
  ASSERT_FALSE(asked.ok());
  EXPECT_NE(asked.status().message().find("q3_k"), std::string::npos) << asked.status().message();
}

}  // namespace
}  // namespace thermocline::gpu
