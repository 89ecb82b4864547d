// Dense ops on an accelerator: products of whole matrices, attention, norms, rotation. device_ops.h
// states the rules for pointers, streams and bits.
//
// Values that differ from token to token (ids, positions) are read from the device's memory, and
// grids depend on shapes alone: a captured graph stays valid for every token. `positions` [T]: how
// many tokens of its sequence are before each token. Tokens of one step may belong to several
// sequences.
//
// Tolerances, relative to the CPU's results: float weights 1e-5 of sum |w x| (another order of
// sums); exp, erf and tanh 1e-6 (gated, log-sum-exp: of the value); attention 1e-5 of the largest
// |value| (order of sums and exp). All other results have the CPU's bits.
#pragma once

#include "kernels/attention.h"
#include "kernels/device_types.h"
#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "kernels/quantize.h"

namespace thermocline::kernels {

// Activations as they are written: the pointers of Activations, not const. The Q8 form is written
// where q is not null; cols must be a multiple of 32 then.
struct DeviceActivations {
  float* x = nullptr;                // [T, cols]
  std::int8_t* q = nullptr;          // [T, cols]
  float* scale = nullptr;            // [T, cols / 32]
  float* scaled_sum = nullptr;       // [T, cols / 32]
  std::int32_t* sum = nullptr;       // [T, cols / 32]
  std::int32_t* half_sum = nullptr;  // [T, cols / 32]
  int cols = 0;

  Activations view() const { return {x, q, scale, scaled_sum, sum, half_sum, nullptr, cols}; }
};

// gemm.h's product, then out = product + bias, plus the previous `out` if `accumulate`.
struct DeviceGemmParams {
  GemmParams gemm;              // all of its panels; out_stride of neighbouring tokens
  const float* bias = nullptr;  // [rows] or null
  bool accumulate = false;
  // The second half of the tokens' products is added to the first half's; only the first half gets
  // the bias. Requires: an even number of tokens, not `accumulate`.
  bool fold = false;
};

// The Q8 form of x (quantize.h).
struct DeviceQuantizeParams {
  DeviceActivations x;  // [T, cols]; x is read
  int tokens = 0;
  // Rows [T, 2T) become the rounding errors of rows [0, T), x - scale * q, and their Q8 form: the
  // two rows together have 16 bits of precision.
  bool with_rest = false;
};

// out = norm(x) of T tokens, rows of `n`. out.x may be x.
struct DeviceNormParams {
  const float* x = nullptr;  // [T, n]
  const float* weight = nullptr;
  const float* bias = nullptr;  // layer norm's, or null
  bool rms = true;              // else layer norm
  int n = 0;
  int tokens = 0;
  float eps = 0;
  DeviceActivations out;
};

// x += y, [n].
struct DeviceAddParams {
  float* x = nullptr;
  const float* y = nullptr;
  int n = 0;
};

// out = act(gate) * up of T tokens (elementwise.h). out.x may be gate.
struct DeviceGatedParams {
  const float* gate = nullptr;  // [T, n]
  const float* up = nullptr;    // [T, n] or null
  int n = 0;
  int tokens = 0;
  GateActivation activation = GateActivation::kSilu;
  float threshold = 0;
  DeviceActivations out;  // [T, n]
};

// The device's half of a KV cache (attention.h), of one layer. Block i of token t's sequence lies
// at tables[t][i]; kv head h's keys are keys_offset + h * head_stride bytes into it, values
// likewise.
struct DeviceKv {
  KvType type = KvType::kF16;
  std::uint8_t* const* const* tables = nullptr;  // [T] device arrays of device pointers
  std::size_t keys_offset = 0;
  std::size_t values_offset = 0;
  std::size_t head_stride = 0;
};

// Norms (where there are weights) and rotates (where there is cos) the heads of q and k, multiplies
// q by `scale`, and stores k and v at the tokens' positions. q's Q8 form is written for Q8_0
// caches. k is left as it was.
struct DeviceRotateParams {
  DeviceActivations q;       // [T, H * Dh], in place
  const float* k = nullptr;  // [T, K * Dh]
  const float* v = nullptr;  // [T, K * Dh]
  int heads = 0;             // H
  int kv_heads = 0;          // K
  int head_dim = 0;          // Dh
  int tokens = 0;
  const float* q_norm = nullptr;  // [Dh] or null
  const float* k_norm = nullptr;
  const float* q_norm_bias = nullptr;  // [Dh] or null: layer norms
  const float* k_norm_bias = nullptr;
  bool rms = true;
  float eps = 0;
  const float* cos = nullptr;  // [context, rope_dim / 2] or null: no rotation
  const float* sin = nullptr;
  int rope_dim = 0;
  bool halves = false;
  float scale = 1;
  const int* positions = nullptr;  // [T]
  DeviceKv kv;
};

// Attention of T tokens, whose K and V are stored, over the cache up to themselves: out = softmax(q
// k) v. Softmaxes of aligned chunks of kAttentionChunk positions are merged in order.
struct DeviceAttentionParams {
  Activations q;  // [T, H * Dh], scaled; the Q8 form is read if the cache is Q8_0
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int tokens = 0;
  int context = 0;                 // most tokens of a sequence; sizes the grid
  int window = 0;                  // positions a token sees, itself included; 0: all
  const int* positions = nullptr;  // [T]
  DeviceKv kv;
  float* scratch = nullptr;  // AttentionScratchFloats
  DeviceActivations out;     // [T, H * Dh]
};
inline constexpr std::size_t AttentionScratchFloats(int tokens, int context, int heads,
                                                    int head_dim) {
  const std::size_t chunks = (context + kAttentionChunk - 1) / kAttentionChunk;
  return tokens * chunks * heads * (head_dim + 2);
}

struct DenseOps {
  DeviceError (*gemm)(const DeviceGemmParams&, Stream);
  DeviceError (*quantize)(const DeviceQuantizeParams&, Stream);
  DeviceError (*norm)(const DeviceNormParams&, Stream);
  DeviceError (*add)(const DeviceAddParams&, Stream);
  DeviceError (*gated)(const DeviceGatedParams&, Stream);
  DeviceError (*rotate)(const DeviceRotateParams&, Stream);
  DeviceError (*attention)(const DeviceAttentionParams&, Stream);
};

}  // namespace thermocline::kernels
