// Placements on an emulated device: their memory, lack of room, impossible ones, and the speeds by
// which they are planned.
#include <cmath>

#include "engine/load/device_calibration.h"
#include "tests/engine/gpu/on_device.h"

namespace thermocline::gpu {
namespace {

TEST_F(OnDevice, NoRoomIsATableAndLeavesTheModel) {
  const auto model = exec::Load({.path = exec::kTidepool, .modes = "exact"});
  const auto before = exec::LogitsOf(*model, 3, 1);
  for (const std::size_t memory : {1 << 20, 5 << 20, 8 << 20}) {
    cuda_emulated::SetMachine({.memory_bytes = memory});
    const Status placed = exec::Place(*model, {});
    EXPECT_EQ(placed.code(), StatusCode::kResourceExhausted) << memory;
    EXPECT_NE(placed.message().find("attention and norms"), std::string::npos) << placed.message();
    EXPECT_NE(placed.message().find("free"), std::string::npos) << placed.message();
    if (memory == 8 << 20) std::printf("%s\n", placed.message().c_str());
  }
  cuda_emulated::SetMachine({});
  EXPECT_EQ(exec::LogitsOf(*model, 3, 1), before);
  EXPECT_EQ(cuda_emulated::Allocated(), 0U);
  EXPECT_TRUE(exec::Place(*model, {}).ok());
}

TEST_F(OnDevice, WhatAPlacementTakesIsKnownBefore) {
  const auto model = exec::Load({.path = exec::kTidepool, .modes = "exact"});
  const load::DeviceSizes sizes{.tokens_max = 8, .context_length = exec::kDeviceContext};
  for (const exec::Where& where : {exec::Where{}, exec::Where{.home_layers = 3, .every = 2}}) {
    auto device = exec::OpenEmulated();
    const auto needs = model->MeasureOnDevice(*device, exec::PlacementOf(*model, where), sizes);
    ASSERT_TRUE(needs.ok());
    EXPECT_EQ(cuda_emulated::Allocated(), 0U);
    cuda_emulated::SetMachine({.memory_bytes = needs->weights + needs->work - 1});
    const auto other = exec::Load({.path = exec::kTidepool, .modes = "exact"});
    const Status less =
        other->PlaceOnDevice(exec::OpenEmulated(), exec::PlacementOf(*other, where), sizes);
    EXPECT_EQ(less.code(), StatusCode::kResourceExhausted);
    cuda_emulated::SetMachine({.memory_bytes = needs->weights + needs->work + 4096});
    const Status enough =
        other->PlaceOnDevice(exec::OpenEmulated(), exec::PlacementOf(*other, where), sizes);
    EXPECT_TRUE(enough.ok()) << enough.message();
    cuda_emulated::SetMachine({});
  }
}

TEST_F(OnDevice, PlacementsThatCannotBeAreRefused) {
  const auto model = exec::Load({.path = exec::kTidepool, .modes = "exact"});
  DevicePlacement placement = exec::PlacementOf(*model, {.home_layers = 2, .every = 2});
  const auto refuse = [&](const DevicePlacement& wrong, const std::string& why) {
    const Status placed = model->PlaceOnDevice(exec::OpenEmulated(), wrong, {.context_length = 32});
    EXPECT_EQ(placed.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(placed.message().find(why), std::string::npos) << placed.message();
  };
  DevicePlacement wrong = placement;
  wrong.head = true;
  refuse(wrong, "with the head");
  wrong = placement;
  wrong.hot[1].push_back(0);
  refuse(wrong, "neuron 0 of layer 1");
  wrong.hot.pop_back();
  refuse(wrong, "layers");
  cuda_emulated::SetMachine({.unified = true});
  refuse(placement, "shared by GPU and CPU");
  cuda_emulated::SetMachine({});
}

// The emulator's speeds are meaningless, but a placement can be planned with the measurements.
TEST_F(OnDevice, CalibrationMeasuresEverySpeed) {
  const auto model = exec::Load({.path = exec::kTidepool, .modes = "exact"});
  const auto device = exec::OpenEmulated();
  placement::Machine cpu;
  cpu.name = "cpu";
  cpu.cold = {.dense_bytes_per_s = 1e9, .rows_bytes_per_s = 1e9, .predictor_bytes_per_s = 1e9};
  const auto machine = load::WithDevice(cpu, *device, model->config,
                                        {.types = {}, .network_bytes = 1 << 20, .seconds = 0.2});
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  ASSERT_TRUE(machine->hot.has_value());
  const placement::Processor& hot = *machine->hot;
  for (const double speed : {hot.dense_bytes_per_s, hot.rows_bytes_per_s, hot.predictor_bytes_per_s,
                             hot.decide_bytes_per_s, hot.whole_bytes_per_s, hot.layer_s,
                             machine->sync_s, machine->link_bytes_per_s}) {
    EXPECT_GT(speed, 0);
    EXPECT_TRUE(std::isfinite(speed));
    std::printf("  %.3g\n", speed);
  }
  EXPECT_EQ(machine->hot_bytes, std::int64_t{4} << 30);
  EXPECT_FALSE(machine->unified);
  EXPECT_NE(machine->name.find("Emulated device"), std::string::npos);
  EXPECT_TRUE(placement::Machine::FromJson(machine->ToJson()).ok());
}

}  // namespace
}  // namespace thermocline::gpu
