// Activations in a device's memory, and helpers shared by all users of the device's ops.
#pragma once

#include "engine/base/index.h"
#include "engine/gpu/device_arena.h"
#include "engine/gpu/sizes.h"
#include "kernels/device_ops.h"

namespace thermocline::gpu {

// Floats of `tokens` tokens and, where the width allows it, their Q8 form.
inline void AddActivations(DeviceArena& arena, int tokens, int cols,
                           kernels::DeviceActivations* out) {
  const std::size_t n = Area(tokens, cols);
  out->cols = cols;
  arena.Add(&out->x, n);
  if (cols % kernels::kActivationBlock != 0) return;  // no quantised matrix has rows of this width
  const std::size_t blocks = n / kernels::kActivationBlock;
  arena.Add(&out->q, n);
  arena.Add(&out->scale, blocks);
  arena.Add(&out->scaled_sum, blocks);
  arena.Add(&out->sum, blocks);
  arena.Add(&out->half_sum, blocks);
}

// The activations without the first `first` tokens.
inline kernels::DeviceActivations TokensFrom(kernels::DeviceActivations a, int first) {
  const std::ptrdiff_t at = base::Area(first, a.cols), block = at / kernels::kActivationBlock;
  a.x += at;
  if (a.q == nullptr) return a;
  a.q += at;
  a.scale += block;
  a.scaled_sum += block;
  a.sum += block;
  a.half_sum += block;
  return a;
}

// The same buffers for rows of fewer columns.
inline kernels::DeviceActivations WithCols(kernels::DeviceActivations a, int cols) {
  a.cols = cols;
  if (cols % kernels::kActivationBlock == 0) return a;
  a.q = nullptr;
  return a;
}

}  // namespace thermocline::gpu
