// Speeds of the dense ops on shapes of 7B models. Bytes are the minimum to read or write.
#include <memory>
#include <numeric>

#include "tests/gpu/checks_dense.h"
#include "tests/gpu/dense_inputs.h"
#include "tests/gpu/timing.h"

namespace thermocline::gpu {
namespace {

using kernels::DType;

struct Bench {
  const kernels::DeviceOps& ops;
  bool tiny;  // small shapes, for the emulator
  int calls, rounds;

  int Dim(int n) const { return tiny ? std::max(256, n / 32 / 256 * 256) : n; }
};

std::string Shape(const char* type, int rows, int cols, int tokens) {
  return std::string(type) + " " + std::to_string(rows) + "x" + std::to_string(cols) + " T" +
         std::to_string(tokens);
}

Speed SpeedOfGemm(const Bench& b, DType type, int rows, int cols, int tokens) {
  const std::size_t bytes = kernels::PackedBytes(type, rows, cols);
  // Enough copies that no cache holds them all.
  const std::size_t copies = b.tiny ? 2 : std::max<std::size_t>(2, (std::size_t{1} << 29) / bytes);
  const std::size_t step = (bytes + 255) / 256 * 256;
  const Array<std::uint8_t> weights(b.ops, step * copies);
  const HostTokens x(tokens, cols, kernels::RandomFloats(Elements(tokens, cols), 7));
  const DeviceTokens device_x(b.ops, x);
  const Array<float> out(b.ops, Elements(tokens, rows));
  const double us = MicrosecondsOf(b.ops, b.calls, b.rounds, [&](int i, kernels::Stream stream) {
    const std::uint8_t* data = weights.get() + static_cast<std::size_t>(i) % copies * step;
    return b.ops.dense.gemm({.gemm = {.weights = {type, rows, cols, data},
                                      .activations = device_x.view().view(),
                                      .tokens = tokens,
                                      .out = out,
                                      .out_stride = rows,
                                      .panel_begin = 0,
                                      .panel_end = kernels::NumPanels(rows)}},
                            stream);
  });
  const double moved = static_cast<double>(bytes) + static_cast<double>(Elements(tokens, cols)) +
                       4.0 * static_cast<double>(Elements(tokens, rows));
  return {"gemm", Shape(kernels::Traits(type).name, rows, cols, tokens), moved, us};
}

Speed SpeedOfNorm(const Bench& b, int n) {
  const DeviceTokens out(b.ops, 1, n);
  const Array<float> x(b.ops, static_cast<std::size_t>(n)), weight(b.ops, x.size());
  const double us = MicrosecondsOf(b.ops, b.calls, b.rounds, [&](int, kernels::Stream stream) {
    return b.ops.dense.norm(
        {.x = x, .weight = weight, .n = n, .tokens = 1, .eps = 1e-5F, .out = out.view()}, stream);
  });
  return {"rms norm and Q8", "n" + std::to_string(n), 13.0 * n, us};
}

Speed SpeedOfGated(const Bench& b, int n) {
  const DeviceTokens out(b.ops, 1, n);
  const Array<float> gate(b.ops, static_cast<std::size_t>(n)), up(b.ops, gate.size());
  const double us = MicrosecondsOf(b.ops, b.calls, b.rounds, [&](int, kernels::Stream stream) {
    return b.ops.dense.gated({.gate = gate, .up = up, .n = n, .tokens = 1, .out = out.view()},
                             stream);
  });
  return {"silu, gate and Q8", "n" + std::to_string(n), 13.0 * n, us};
}

Speed SpeedOfAttention(const Bench& b, kernels::KvType type, int kv_heads, int length, int tokens) {
  const int heads = b.tiny ? kv_heads : 32, dh = 128;
  const std::size_t keys = kernels::KeyBlockBytes(type, dh),
                    stride = keys + kernels::ValueBlockBytes(type, dh),
                    block = stride * static_cast<std::size_t>(kv_heads);
  const int blocks = (length + kernels::kKvBlock - 1) / kernels::kKvBlock;
  // A cache of several layers, so that each call reads another one.
  const std::size_t layers = b.tiny ? 1 : 8;
  const Array<std::uint8_t> cache(b.ops, block * layers * static_cast<std::size_t>(blocks));
  std::vector<std::uint8_t*> pointers;
  for (int i = 0; i < blocks; ++i)
    pointers.push_back(cache.get() + static_cast<std::size_t>(i) * block * layers);
  const Array<std::uint8_t*> table(b.ops, pointers);
  const DeviceTokens q(b.ops, tokens, heads * dh), out(b.ops, tokens, heads * dh);
  const Array<std::uint8_t* const*> tables(
      b.ops, std::vector<std::uint8_t* const*>(static_cast<std::size_t>(tokens), table.get()));
  std::vector<int> own(static_cast<std::size_t>(tokens));
  std::iota(own.begin(), own.end(), length - tokens);
  const Array<int> positions(b.ops, own);
  const Array<float> scratch(b.ops, kernels::AttentionScratchFloats(tokens, length, heads, dh));
  const double us = MicrosecondsOf(b.ops, b.calls, b.rounds, [&](int i, kernels::Stream stream) {
    const std::size_t layer = static_cast<std::size_t>(i) % layers * block;
    return b.ops.dense.attention({.q = q.view().view(),
                                  .heads = heads,
                                  .kv_heads = kv_heads,
                                  .head_dim = dh,
                                  .tokens = tokens,
                                  .context = length,
                                  .positions = positions,
                                  .kv = {type, tables, layer, layer + keys, stride},
                                  .scratch = scratch,
                                  .out = out.view()},
                                 stream);
  });
  constexpr const char* kNames[] = {"f16", "q8_0", "f32"};
  return {"attention",
          std::string(kNames[static_cast<int>(type)]) + " heads " + std::to_string(heads) + "/" +
              std::to_string(kv_heads) + " of 128, " + std::to_string(length) + " positions T" +
              std::to_string(tokens),
          static_cast<double>(block) * blocks, us};
}

}  // namespace

std::vector<Speed> MeasureDense(const kernels::DeviceOps& ops, bool tiny) {
  const Bench b{ops, tiny, tiny ? 2 : 40, tiny ? 1 : 9};
  const int d = b.Dim(4096), f = b.Dim(11008), v = b.Dim(32000);
  std::vector<Speed> speeds;
  for (const DType type : {DType::kQ4_0, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K, DType::kF16}) {
    speeds.push_back(SpeedOfGemm(b, type, d, d, 1));
    speeds.push_back(SpeedOfGemm(b, type, 2 * f, d, 1));
    speeds.push_back(SpeedOfGemm(b, type, d, f, 1));
    speeds.push_back(SpeedOfGemm(b, type, v, d, 2));
    speeds.push_back(SpeedOfGemm(b, type, f, d, 8));
    speeds.push_back(SpeedOfGemm(b, type, f, d, 64));
  }
  speeds.push_back(SpeedOfNorm(b, d));
  speeds.push_back(SpeedOfGated(b, f));
  for (const kernels::KvType type : {kernels::KvType::kF16, kernels::KvType::kQ8_0}) {
    for (const int kv_heads : {32, 8}) {
      speeds.push_back(SpeedOfAttention(b, type, tiny ? 2 : kv_heads, tiny ? 300 : 512, 1));
      speeds.push_back(SpeedOfAttention(b, type, tiny ? 2 : kv_heads, tiny ? 300 : 4096, 1));
    }
  }
  return speeds;
}

}  // namespace thermocline::gpu
