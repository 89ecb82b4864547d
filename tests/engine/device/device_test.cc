// Opening an accelerator, rejecting it with a reason, later errors, and freed memory.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "engine/device/buffers.h"
#include "engine/device/stream.h"
#include "tests/cuda_emulated/emulated_ops.h"
#include "tests/cuda_emulated/emulator.h"

namespace thermocline::device {
namespace {

using testing::Test;

bool Says(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

class DeviceTest : public Test {
 protected:
  void SetUp() override { Restore(); }
  void TearDown() override { Restore(); }
  static void Restore() {
    cuda_emulated::SetMachine({});
    cuda_emulated::Inject({});
  }
  // Expects a rejection with this code and text.
  static void Refuses(const Device::Params& params, StatusCode code, const std::string& words) {
    const auto device = Device::Open(params);
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.status().code(), code) << device.status().ToString();
    EXPECT_TRUE(Says(device.status(), words)) << device.status().ToString();
  }
  static std::unique_ptr<Device> Open() {
    auto device = Device::Open(kEmulated);
    EXPECT_TRUE(device.ok()) << device.status().ToString();
    return *std::move(device);
  }
  inline static const Device::Params kEmulated{.ops = &kernels::EmulatedOps(), .nodes = "/nowhere"};
};

TEST_F(DeviceTest, ABuildWithoutCudaSaysHowToGetOne) {
  Refuses({.ops = nullptr}, StatusCode::kUnimplemented, "-DTHERMOCLINE_CUDA=ON");
}

TEST_F(DeviceTest, AMissingDriverIsNamed) {
  cuda_emulated::SetMachine({.count_error = cudaErrorInsufficientDriver});
  Refuses(kEmulated, StatusCode::kFailedPrecondition, "install or update the driver");
}

TEST_F(DeviceTest, AMachineWithoutAGpuIsNamed) {
  cuda_emulated::SetMachine({.count_error = cudaErrorNoDevice});
  Refuses(kEmulated, StatusCode::kNotFound, "the driver finds no GPU");
  cuda_emulated::SetMachine({.devices = 0});
  Refuses(kEmulated, StatusCode::kNotFound, "the driver finds no GPU");
}

TEST_F(DeviceTest, AnOddErrorIsPassedOn) {
  cuda_emulated::SetMachine({.count_error = cudaErrorSystemNotReady});
  Refuses(kEmulated, StatusCode::kUnavailable, cudaGetErrorString(cudaErrorSystemNotReady));
}

TEST_F(DeviceTest, ANodeThatMayNotBeOpenedIsNamed) {
  if (geteuid() == 0) {
    // Root may open every file, so a dangling link is used instead.
    const std::string folder = testing::TempDir() + "dev_" + std::to_string(getpid());
    std::filesystem::create_directories(folder);
    std::filesystem::create_symlink("/nowhere/at/all", folder + "/nvidiactl");
    cuda_emulated::SetMachine({.count_error = cudaErrorNoDevice});
    Refuses({.ops = kEmulated.ops, .nodes = folder.c_str()}, StatusCode::kFailedPrecondition,
            folder + "/nvidiactl");
    std::filesystem::remove_all(folder);
    return;
  }
  const std::string folder = testing::TempDir() + "dev_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/nvidiactl").put('x');
  chmod((folder + "/nvidiactl").c_str(), 0);
  cuda_emulated::SetMachine({.count_error = cudaErrorNoDevice});
  Refuses({.ops = kEmulated.ops, .nodes = folder.c_str()}, StatusCode::kFailedPrecondition,
          "no permission to use " + folder + "/nvidiactl");
  std::filesystem::remove_all(folder);
}

TEST_F(DeviceTest, AnIndexThatDoesNotExistIsNamed) {
  Refuses({.ops = kEmulated.ops, .index = 3, .nodes = "/nowhere"}, StatusCode::kNotFound,
          "there is no GPU 3: the driver finds 1");
}

// If any call during opening fails, the result is an error, never an object or a crash.
TEST_F(DeviceTest, EveryCallOfOpeningMayFail) {
  const int before = cuda_emulated::Calls();
  Open();
  const int calls = cuda_emulated::Calls() - before;
  ASSERT_GT(calls, 3);
  int refused = 0;
  for (int after = 0; after < calls; ++after) {
    cuda_emulated::Inject({.after = after, .error = cudaErrorLaunchFailure});
    const auto device = Device::Open(kEmulated);
    refused += device.ok() ? 0 : 1;
    if (!device.ok()) {
      EXPECT_TRUE(Says(device.status(), cudaGetErrorString(cudaErrorLaunchFailure)))
          << device.status().ToString();
    }
    cuda_emulated::Inject({});
  }
  EXPECT_GE(refused, calls - 1);  // a fault in cudaGetLastError itself may be ignored
}

TEST_F(DeviceTest, AnArchitectureThatWasNotBuiltIsNamed) {
  int after = 0;
  bool named = false;
  for (; after < 30 && !named; ++after) {
    cuda_emulated::Inject({.after = after, .error = cudaErrorNoKernelImageForDevice});
    const auto device = Device::Open(kEmulated);
    named = !device.ok() && device.status().code() == StatusCode::kUnimplemented &&
            Says(device.status(), "-DCMAKE_CUDA_ARCHITECTURES=80");
    cuda_emulated::Inject({});
  }
  EXPECT_TRUE(named);
}

TEST_F(DeviceTest, MemoryGoesThereAndBackAndIsFreed) {
  const std::size_t before = cuda_emulated::Allocated();
  {
    const auto device = Open();
    const auto stream = DeviceStream::Create(*device);
    ASSERT_TRUE(stream.ok());
    auto buffer = DeviceBuffer::Allocate(*device, "numbers", 4000);
    auto mapped = MappedBuffer::Allocate(*device, "hand-off", 4000);
    ASSERT_TRUE(buffer.ok() && mapped.ok());
    EXPECT_EQ(mapped->host<char>()[3999], 0);
    std::vector<int> numbers(1000), back(1000);
    std::iota(numbers.begin(), numbers.end(), 5);
    ASSERT_TRUE((*stream)->CopyToDevice(buffer->data(), numbers.data(), 4000).ok());
    ASSERT_TRUE((*stream)->CopyOnDevice(mapped->on_device<void>(), buffer->data(), 4000).ok());
    ASSERT_TRUE((*stream)->Fill(buffer->as<int>() + 1, 0xFF, 4).ok());
    ASSERT_TRUE((*stream)->CopyToHost(back.data(), buffer->data(), 4000).ok());
    ASSERT_TRUE((*stream)->Synchronize().ok());
    EXPECT_EQ(mapped->host<int>()[999], 1004);
    EXPECT_EQ(back[1], -1);
    EXPECT_EQ(back[999], 1004);
    const DeviceBuffer moved = *std::move(buffer);
    EXPECT_EQ(moved.bytes(), 4000U);
  }
  EXPECT_EQ(cuda_emulated::Allocated(), before);
}

TEST_F(DeviceTest, AGraphRunsWhenItIsLaunched) {
  const auto device = Open();
  const auto stream = *DeviceStream::Create(*device);
  const auto begin = *DeviceEvent::Create(*device), end = *DeviceEvent::Create(*device);
  const auto epoch = *DeviceBuffer::Allocate(*device, "epoch", 4);
  ASSERT_TRUE(stream->Fill(epoch.data(), 0, 4).ok());
  ASSERT_TRUE(stream->BeginGraph().ok());
  ASSERT_EQ(device->ops().sparse.advance(epoch.as<std::uint32_t>(), stream->handle()), 0);
  const auto graph = *stream->EndGraph();
  ASSERT_TRUE(begin->Record(*stream).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(stream->Launch(*graph).ok());
  ASSERT_TRUE(end->Record(*stream).ok());
  ASSERT_TRUE(end->Wait().ok());
  std::uint32_t count = 0;
  ASSERT_TRUE(stream->CopyToHost(&count, epoch.data(), 4).ok());
  ASSERT_TRUE(stream->Synchronize().ok());
  EXPECT_EQ(count, 3U);
  const auto ms = end->MillisecondsSince(*begin);
  ASSERT_TRUE(ms.ok());
  EXPECT_GE(*ms, 0.0F);
}

TEST_F(DeviceTest, OutOfMemoryListsWhatMemoryIsUsedFor) {
  const auto device = Open();
  const auto weights = DeviceBuffer::Allocate(*device, "weights", 3U << 20),
             more = DeviceBuffer::Allocate(*device, "weights", 2U << 20),
             pinned = DeviceBuffer::Allocate(*device, "cache", 1U << 20);
  ASSERT_TRUE(weights.ok() && more.ok() && pinned.ok());
  const auto huge = DeviceBuffer::Allocate(*device, "hot neurons", std::size_t{1} << 40);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.status().code(), StatusCode::kResourceExhausted);
  for (const char* words : {"no room for hot neurons in GPU memory", "5 MiB  weights (2 pieces)",
                            "1 MiB  cache", "asked for  1048576 MiB  hot neurons", "of 4096 MiB"})
    EXPECT_TRUE(Says(huge.status(), words)) << words << "\n" << huge.status().message();
  // A rejected allocation holds no memory, and the device stays usable.
  EXPECT_TRUE(DeviceBuffer::Allocate(*device, "small", 64).ok());
}

TEST_F(DeviceTest, MappedMemoryMayRunOutToo) {
  const auto device = Open();
  cuda_emulated::Inject({.after = 0, .error = cudaErrorMemoryAllocation});
  const auto ring = MappedBuffer::Allocate(*device, "ring", 4096);
  cuda_emulated::Inject({});
  ASSERT_FALSE(ring.ok());
  EXPECT_TRUE(Says(ring.status(), "no room for ring in pinned memory")) << ring.status().ToString();
}

// A sticky error appears when the stream is synchronized. After a reset the device works again, and
// older allocations are not freed twice.
TEST_F(DeviceTest, AStickyErrorIsGoneAfterAReset) {
  const auto device = Open();
  auto stream = *DeviceStream::Create(*device);
  auto buffer = *DeviceBuffer::Allocate(*device, "numbers", 64);
  cuda_emulated::Inject({.after = 0, .error = cudaErrorIllegalAddress, .sticky = true});
  const Status filled = stream->Fill(buffer.data(), 0, 64), waited = stream->Synchronize();
  EXPECT_FALSE(filled.ok());
  EXPECT_EQ(waited.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Says(waited, cudaGetErrorString(cudaErrorIllegalAddress))) << waited.ToString();
  ASSERT_TRUE(device->Reset().ok());
  buffer = DeviceBuffer();
  stream = *DeviceStream::Create(*device);
  buffer = *DeviceBuffer::Allocate(*device, "numbers", 64);
  EXPECT_TRUE(stream->Fill(buffer.data(), 0, 64).ok());
  EXPECT_TRUE(stream->Synchronize().ok());
}

}  // namespace
}  // namespace thermocline::device
