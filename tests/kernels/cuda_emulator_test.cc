// Tests of the emulator itself: order, collectives, streams, graphs, faults.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "kernels/cuda/launch.h"
#include "tests/cuda_emulated/emulator.h"

namespace thermocline::kernels::emulated {
namespace {

struct Device {
  Stream stream;
  Device() {
    cudaStream_t handle;
    EXPECT_EQ(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking), cudaSuccess);
    stream.handle = handle;
  }
  ~Device() {
    cudaStreamDestroy(Handle(stream));
    cuda_emulated::Inject({});
  }
  void Wait() { EXPECT_EQ(cudaStreamSynchronize(Handle(stream)), cudaSuccess); }
};

// out[block] = sum of x[256], by a tree over shared memory and then shuffles.
__global__ void SumBlocks(const int* x, int* out) {
  __shared__ int sums[8];
  auto* copy = ptx::DynamicShared<int>();
  const int thread = static_cast<int>(threadIdx.x);
  copy[thread] = x[static_cast<int>(blockIdx.x) * 256 + thread];
  __syncthreads();
  int value = copy[255 - thread];
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(~0U, value, bits);
  if (thread % 32 == 0) sums[thread / 32] = value;
  __syncthreads();
  if (thread == 0) {
    out[blockIdx.x] = 0;
    for (const int sum : sums) out[blockIdx.x] += sum;
  }
}

TEST(Emulator, BarriersAndShuffles) {
  Device device;
  std::vector<int> x(1024);
  std::iota(x.begin(), x.end(), 7);
  int out[4];
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(Launch(SumBlocks, 4, 256, 1024, device.stream, x.data(), out), 0);
    device.Wait();
    for (int b = 0; b < 4; ++b)
      EXPECT_EQ(out[b], std::accumulate(x.begin() + b * 256, x.begin() + b * 256 + 256, 0));
  }
}

__global__ void Votes(unsigned* out) {
  const auto lane = static_cast<int>(threadIdx.x);
  if (lane % 2 == 0) {
    out[lane] = __ballot_sync(0x55555555U, lane % 4 == 0 ? 1 : 0);
  } else {
    out[lane] = static_cast<unsigned>(__shfl_sync(0xAAAAAAAAU, lane, 31));
  }
  out[lane] += static_cast<unsigned>(__syncthreads_count(lane < 5 ? 1 : 0)) << 16;
}

TEST(Emulator, HalvesOfAWarpMeetApart) {
  Device device;
  unsigned out[32];
  Launch(Votes, 1, 32, 0, device.stream, out);
  device.Wait();
  for (unsigned lane = 0; lane < 32; ++lane)
    EXPECT_EQ(out[lane], (lane % 2 == 0 ? 0x11111111U : 31U) + (5U << 16));
}

__global__ void Fragment(const std::int8_t* a, const std::int8_t* b, int* c) {
  const auto lane = static_cast<int>(threadIdx.x);
  const int g = lane / 4, t = lane % 4;
  unsigned wa[4], wb[2];
  for (int i = 0; i < 4; ++i) std::memcpy(&wa[i], a + (g + i % 2 * 8) * 32 + i / 2 * 16 + 4 * t, 4);
  for (int i = 0; i < 2; ++i) std::memcpy(&wb[i], b + g * 32 + i * 16 + 4 * t, 4);
  int sums[4] = {1, 1, 1, 1};
  ptx::MmaK32(sums, wa, wb);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

TEST(Emulator, MatrixFragments) {
  Device device;
  std::int8_t a[16 * 32], b[8 * 32];  // b in columns
  for (int i = 0; i < 512; ++i) a[i] = static_cast<std::int8_t>(i * 37 + i / 3);
  for (int i = 0; i < 256; ++i) b[i] = static_cast<std::int8_t>(i * 53 - i / 5);
  int c[128];
  Launch(Fragment, 1, 32, 0, device.stream, a, b, c);
  device.Wait();
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      int want = 1;
      for (int k = 0; k < 32; ++k) want += a[row * 32 + k] * b[column * 32 + k];
      EXPECT_EQ(c[row * 8 + column], want);
    }
  }
}

__global__ void LoseALane(int* out) {
  if (threadIdx.x == 3) return;
  __syncwarp();
  out[threadIdx.x] = 1;
}
__global__ void SplitBarrier(int* out) {
  if (threadIdx.x < 32) __syncthreads();
  if (threadIdx.x >= 32) __syncwarp(1U << (threadIdx.x % 32) | 1U);
  out[threadIdx.x] = 1;
}

TEST(EmulatorDeathTest, MissingLanesAreFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  int out[64];
  EXPECT_DEATH(
      {
        Device device;
        Launch(LoseALane, 1, 32, 0, device.stream, out);
        device.Wait();
      },
      "cuda_emulator_test.cc:[0-9]+, block .0, 0, 0.: a lane named by a collective's mask has");
  EXPECT_DEATH(
      {
        Device device;
        Launch(SplitBarrier, 1, 64, 0, device.stream, out);
        device.Wait();
      },
      "cuda_emulator_test.cc");
}

__global__ void Spin(const std::uint32_t* flag, int* out) {
  while (ptx::LoadAcquireSystem(flag) == 0) __nanosleep(100);
  *out = 5;
}

TEST(Emulator, AKernelMayWaitForTheHost) {
  Device device;
  std::uint32_t flag = 0;
  int out = 0;
  Launch(Spin, 1, 1, 0, device.stream, &flag, &out);
  EXPECT_EQ(cudaStreamQuery(Handle(device.stream)), cudaErrorNotReady);
  __atomic_store_n(&flag, 1U, __ATOMIC_RELEASE);
  device.Wait();
  EXPECT_EQ(out, 5);
}

__global__ void Increment(int* x) { ++*x; }

TEST(Emulator, GraphsRunWhatWasCaptured) {
  Device device;
  int x = 0;
  ASSERT_EQ(cudaStreamBeginCapture(Handle(device.stream), cudaStreamCaptureModeThreadLocal), 0);
  Launch(Increment, 1, 1, 0, device.stream, &x);
  Launch(Increment, 1, 1, 0, device.stream, &x);
  cudaGraph_t graph;
  ASSERT_EQ(cudaStreamEndCapture(Handle(device.stream), &graph), 0);
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), 0);
  device.Wait();
  EXPECT_EQ(x, 0);
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(exec, Handle(device.stream));
  device.Wait();
  EXPECT_EQ(x, 6);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

TEST(Emulator, FaultsComeWhereTheyWereAskedFor) {
  Device device;
  int x = 0;
  cuda_emulated::Inject({.after = 1, .error = cudaErrorLaunchFailure});
  EXPECT_EQ(Launch(Increment, 1, 1, 0, device.stream, &x), 0);
  EXPECT_EQ(Launch(Increment, 1, 1, 0, device.stream, &x), cudaErrorLaunchFailure);
  EXPECT_EQ(Launch(Increment, 1, 1, 0, device.stream, &x), 0);
  EXPECT_EQ(Launch(Increment, 1, 2048, 0, device.stream, &x), cudaErrorInvalidConfiguration);
  device.Wait();
  EXPECT_EQ(x, 2);
  cuda_emulated::SetMachine({.memory_bytes = 1000});
  void* memory;
  EXPECT_EQ(cudaMalloc(&memory, 1001), cudaErrorMemoryAllocation);
  ASSERT_EQ(cudaMalloc(&memory, 999), cudaSuccess);
  EXPECT_EQ(cuda_emulated::Allocated(), 999U);
  EXPECT_EQ(static_cast<unsigned char*>(memory)[998], 0xCD);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
  cuda_emulated::SetMachine({});
}

}  // namespace
}  // namespace thermocline::kernels::emulated
