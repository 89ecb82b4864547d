// What becomes of the products of rows, whatever their type.
#pragma once

#include "kernels/cuda/activations.h"
#include "kernels/cuda/neuron_set.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

// The products of `rows` rows from list position `first` on are in lanes row * tokens + token. All
// lanes of the warp call it.
__device__ inline void StoreProducts(const DeviceGemmRowsParams& p, int first, int rows, int count,
                                     float product, int lane) {
  const int row = lane / p.tokens, t = lane % p.tokens;
  const bool valid = row < rows && first + row < count;
  const int id = valid ? p.neurons.ids[first + row] : 0;
  const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(t) * p.stride + id;
  const unsigned mask = valid ? p.neurons.masks[id] : 0;
  const bool mine = ((mask >> t) & 1U) != 0;
  const float v = p.bias != nullptr && valid ? product + p.bias[id] : product;
  if (p.epilogue == RowsEpilogue::kCombine) {
    if (valid)
      p.h[at] = mine ? GatedValue(p.activation, p.activation_threshold, p.gate[at], v) : 0.0F;
    return;
  }
  if (valid && p.out != nullptr) p.out[at] = v;
  if (p.epilogue == RowsEpilogue::kStore) return;
  const float act = ActivateGate(p.activation, p.activation_threshold, v);
  const float least = p.least != nullptr ? *p.least : 0;
  const bool lives = mine && act != 0 && fabsf(act) >= least;
  const unsigned all = __ballot_sync(0xFFFFFFFFU, lives ? 1 : 0);
  if (!valid) return;
  if (t == 0)
    p.live.masks[id] =
        static_cast<std::uint16_t>((all >> (row * p.tokens)) & ((1U << p.tokens) - 1));
  if (p.h != nullptr) p.h[at] = lives ? act : 0.0F;
}

// The end of a launch of GemmRows, in all its threads.
__device__ inline void EndRows(const DeviceGemmRowsParams& p) {
  if (p.epilogue == RowsEpilogue::kDecide) EndWithList(p.live, p.neurons.masks, p.weights.neurons);
}

// Blocks of a launch over a list of at most `rows` rows, `warps` in each.
int RowsGrid(int rows, int warps);

DeviceError GemmQuantizedRows(const DeviceGemmRowsParams& p, Stream stream);
DeviceError GemmFloatRows(const DeviceGemmRowsParams& p, Stream stream);

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
