// Sparse ops on an accelerator: predicting neurons, and multiplying the rows of the predicted ones.
// Counts and lists stay on the device and grids are fixed, so that graphs of launches stay valid.
// device_ops.h states the rules for pointers, streams and bits.
//
// A device holds the hot neurons of a layer, or all of them. Neurons have their number in the layer
// everywhere, 0..F-1; only the bytes of rows are at other places, given by a table. The values of a
// neuron and a token (gate, h, logit) lie at [t, neuron], so they do not move when lists shrink.
// Every array begins at a multiple of 16 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/device_types.h"
#include "kernels/elementwise.h"
#include "kernels/rows.h"
#include "kernels/shared_sum.h"
#include "kernels/sign_predict.h"

namespace thermocline::kernels {

// Tokens of one call of a sparse op.
inline constexpr int kSparseTokensMax = 16;

// Neurons, and the tokens each is for. R = NumSumRuns(F). All on the device.
struct NeuronSet {
  std::uint16_t* masks = nullptr;  // [F] bit t: for token t; 0 = not in the set
  std::int32_t* ids = nullptr;     // [F] those in the set, ascending
  // [R + 1] index in ids[] of the first neuron >= 1024 i; the last one is the number of neurons.
  std::int32_t* starts = nullptr;
  std::int32_t* ticket = nullptr;  // [1] zero at first, and after every op
};

// Rows of a layer's matrix as in kernels/rows.h, of the neurons that the device holds.
struct DeviceRows {
  DType type = DType::kF32;             // HasDeviceKernels
  int neurons = 0;                      // F
  int cols = 0;                         // a multiple of the type's block
  const std::uint8_t* data = nullptr;   // 16-byte aligned
  const std::int32_t* slots = nullptr;  // [F] the row of a neuron, -1 = not here; null: its number
};

// PackSignInput of T tokens. Its sums have the CPU's order.
struct DevicePackSignParams {
  const float* x = nullptr;               // [T, x_stride]
  int x_stride = 0;                       // floats
  const std::int32_t* columns = nullptr;  // [cols] the elements of x to take, or null: the first
  int cols = 0;
  int slices = 0;
  int tokens = 0;                  // T
  std::uint64_t* words = nullptr;  // [T, SignInputWords(cols, slices)]
  std::int32_t* totals = nullptr;  // [T]
};

// Neurons whose score less `shift` reaches their threshold. Scores are integers, so they equal the
// CPU's.
struct DeviceSignPredictParams {
  SignPlanes planes = {};                    // cols, and bits on the device; rows = F or slots
  const std::int32_t* slots = nullptr;       // [F] -1 = not here; null: every neuron is
  bool planes_by_slot = false;               // a neuron's bits are row slots[i], else row i
  const std::int32_t* thresholds = nullptr;  // [F]
  const std::int32_t* shift = nullptr;       // [1] or null: 0
  int neurons = 0;                           // F
  int slices = 0;
  int tokens = 0;                        // T
  const std::uint64_t* words = nullptr;  // of DevicePackSignParams
  const std::int32_t* totals = nullptr;
  NeuronSet out = {};
};

// Neurons whose logit is at least `threshold` + *shift; all neurons on the device if there are no
// logits.
struct DeviceLogitPredictParams {
  const float* logits = nullptr;  // [T, logits_stride] or null
  int logits_stride = 0;
  float threshold = 0;
  const float* shift = nullptr;         // [1] or null: 0
  const std::int32_t* slots = nullptr;  // [F] -1 = not here; null: every neuron is
  bool logits_by_slot = false;          // logits at [t, slots[i]], else [t, i]
  int neurons = 0;                      // F
  int tokens = 0;                       // T
  NeuronSet out = {};
};

// The treatment of v = W[i] . x[t] + bias[i], for the neurons of the set. A bit of a neuron's mask
// for each token says whether the neuron was selected for it.
//   kStore    out[t, i] = v
//   kDecide   out[t, i] = v. Neuron i is live for t if it is selected for t, act(v) != 0 and
//             |act(v)| >= *least; `live` receives these neurons. With `h` (networks without a
//             gate), h[t, i] = act(v) where it is live, else 0
//   kCombine  h[t, i] = act(gate[t, i]) * v (kDRelu: * max(v, 0)); 0 for tokens not selected
//   kGated    kDecide with the gate's rows, then kCombine with up's rows of the live neurons, in
//             one launch; out may be null
enum class RowsEpilogue : std::uint8_t { kStore, kDecide, kCombine, kGated };

// out[t, i] = W[i] . x[t] for the neurons of a set, each read once for all tokens. Quantised types
// have the bits of gemm.h; sums of float types have a fixed order of their own: |error| <= 1e-5 *
// sum |w x|. Silu and Gelu differ from the CPU's in their last bits: 1e-5 relative.
struct DeviceGemmRowsParams {
  DeviceRows weights = {};
  NeuronSet neurons = {};       // read
  Activations activations;      // [T, cols] of the device
  int tokens = 0;               // T
  const float* bias = nullptr;  // [F] or null
  RowsEpilogue epilogue = RowsEpilogue::kStore;
  GateActivation activation = GateActivation::kRelu;
  float activation_threshold = 0;  // kFatRelu's
  float* out = nullptr;            // [T, stride]
  int stride = 0;                  // floats between two tokens' rows of out, gate and h; >= F
  const float* least = nullptr;    // [1] or null: 0
  NeuronSet live = {};
  const float* gate = nullptr;  // [T, stride]
  float* h = nullptr;           // [T, stride]
  // kGated: of the type, columns and slots of `weights`.
  DeviceRows up = {};
  const float* up_bias = nullptr;  // [F] or null
};

// The down projection, SumRows of rows.h, in three steps as SharedSum and FinishSum there say. T
// tokens, runs R = NumSumRuns(F). Steps 1 and 2 are skipped and done, in this order:
//   q8_0 q4_0 q4_1 q4_k  max_rows, sum_rows, finish_sum
//   f32 f16 bf16         sum_rows, finish_sum: no maxima, `sums` instead of high and low
// The CPU's bits for q8_0 and q4_0 in any partition. For q4_1 and q4_k in one partition; a second
// one's sums of minimums are added after the first's. Float types: |error| <= 1e-5 * sum |h w|.
struct DeviceSumRowsParams {
  DeviceRows weights = {};   // [F, D] of a type that CanSumRows
  NeuronSet neurons = {};    // read: rows to add
  const float* h = nullptr;  // [T, h_stride] by neuron
  int h_stride = 0;
  int tokens = 0;           // T
  float* maxima = nullptr;  // [T, R, D / 32] step 1: written
  // Step 2: the larger of both, element by element; this partition's maxima and another's or null.
  const float* limits[2] = {};   // [T, R, D / 32]
  std::int32_t* high = nullptr;  // [T, R, D] written
  std::int32_t* low = nullptr;   // [T, R, D] written
  float* minimums = nullptr;     // [T, R, D / 32] written, if the type has them
  float* sums = nullptr;         // [T, R, D] written, float types
};

// out[t, c] = y + bias[c], plus the previous value if `accumulate`.
struct DeviceFinishSumParams {
  static constexpr int kPartsMax = FinishSumParams::kPartsMax;
  int neurons = 0, cols = 0;  // F, D
  int tokens = 0;             // T
  int parts = 0;
  const float* limits[2] = {};               // [T, R, D / 32] as in step 2
  const std::int32_t* high[kPartsMax] = {};  // [T, R, D]; null: float types
  const std::int32_t* low[kPartsMax] = {};
  const float* minimums[kPartsMax] = {};  // [T, R, D / 32], null if the type has none
  const float* sums[kPartsMax] = {};      // [T, R, D] float types
  const float* bias = nullptr;            // [D] or null
  bool accumulate = false;
  float* out = nullptr;  // [T, out_stride]
  int out_stride = 0;
};

// All steps of one partition, in one launch for a decode step and two for prefill: out as
// finish_sum writes it. Requires: one part, whose arrays are those of `sum`.
struct DeviceDownRowsParams {
  DeviceSumRowsParams sum = {};  // limits are its own maxima
  DeviceFinishSumParams finish = {};
  std::int32_t* tickets = nullptr;  // [T, Tickets(D)] zeros at first, and after every op
  static constexpr int Tickets(int cols) { return (cols + 63) / 64; }
};

// The hand-off between the device and the host by flags in mapped memory. A step of the graph first
// advances `epoch`, which both sides count; a flag equal to the epoch means that this step's bytes
// have arrived. The host stores its flag with release and waits for the other's with acquire.
struct DevicePublishParams {
  const void* from = nullptr;            // on the device, 16-byte aligned
  void* to = nullptr;                    // mapped
  std::size_t bytes = 0;                 // a multiple of 4, a few KB: one block copies them
  std::uint32_t* flag = nullptr;         // mapped; set to *epoch once the bytes are there
  const std::uint32_t* epoch = nullptr;  // on the device
};

// Holds the stream until *flag has reached *epoch. It gives up after `spins_max` polls, so that a
// dead host does not hang the device; then every later wait with the same `error` gives up at once.
struct DeviceWaitParams {
  const std::uint32_t* flag = nullptr;   // mapped
  const std::uint32_t* epoch = nullptr;  // on the device
  std::uint32_t* error = nullptr;        // mapped; set to 1 when it gives up
  std::uint64_t spins_max = 0;           // a poll takes about 1 us over a bus, 0.1 us in shared
                                         // memory
};

struct SparseOps {
  DeviceError (*pack_sign_input)(const DevicePackSignParams&, Stream);
  DeviceError (*sign_predict)(const DeviceSignPredictParams&, Stream);
  DeviceError (*logit_predict)(const DeviceLogitPredictParams&, Stream);
  DeviceError (*gemm_rows)(const DeviceGemmRowsParams&, Stream);
  DeviceError (*max_rows)(const DeviceSumRowsParams&, Stream);
  DeviceError (*sum_rows)(const DeviceSumRowsParams&, Stream);
  DeviceError (*finish_sum)(const DeviceFinishSumParams&, Stream);
  DeviceError (*down_rows)(const DeviceDownRowsParams&, Stream);
  DeviceError (*advance)(std::uint32_t* epoch, Stream);  // ++*epoch
  DeviceError (*publish)(const DevicePublishParams&, Stream);
  DeviceError (*wait)(const DeviceWaitParams&, Stream);
};

}  // namespace thermocline::kernels
