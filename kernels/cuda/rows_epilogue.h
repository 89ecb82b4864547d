// The epilogue of the products of rows of any type.
#pragma once

#include "kernels/cuda/activations.h"
#include "kernels/cuda/neuron_set.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

// The products of a tile of rows are in lanes row * tokens + token.
struct Tile {
  int first, rows, count;  // first entry in the list, rows of the tile; length of the list
};

// A lane's row and token.
struct Lane {
  int row, token, id;
  bool valid;
  std::ptrdiff_t at;  // index in [T, stride]
};

__device__ inline Lane LaneOf(const DeviceGemmRowsParams& p, const Tile& tile, int lane) {
  Lane out = {lane / p.tokens, lane % p.tokens, 0, false, 0};
  out.valid = out.row < tile.rows && tile.first + out.row < tile.count;
  out.id = out.valid ? p.neurons.ids[tile.first + out.row] : 0;
  out.at = StartOf(out.token, p.stride) + out.id;
  return out;
}

// Computes kDecide (device_sparse.h) for a tile. `v`: the product with its bias. Returns one bit
// for each lane, set where its row is live for its token. All lanes of the warp call it.
__device__ inline unsigned Decide(const DeviceGemmRowsParams& p, const Lane& of, float v) {
  const unsigned mask = of.valid ? p.neurons.masks[of.id] : 0;
  const float act = ActivateGate(p.activation, p.activation_threshold, v);
  const float least = p.least != nullptr ? *p.least : 0;
  const bool lives = ((mask >> of.token) & 1U) != 0 && act != 0 && fabsf(act) >= least;
  const unsigned all = __ballot_sync(0xFFFFFFFFU, lives ? 1 : 0);
  if (!of.valid) return all;
  if (of.token == 0)
    p.live.masks[of.id] =
        static_cast<std::uint16_t>((all >> (of.row * p.tokens)) & ((1U << p.tokens) - 1));
  if (p.h != nullptr && p.epilogue == RowsEpilogue::kDecide) p.h[of.at] = lives ? act : 0.0F;
  return all;
}

// Stores a tile's products, except up's products of kGated. Returns the bits of Decide, or 0. `v`
// gets its bias. All lanes of the warp call it.
__device__ inline unsigned StoreProducts(const DeviceGemmRowsParams& p, const Tile& tile, float& v,
                                         int lane) {
  const Lane of = LaneOf(p, tile, lane);
  if (p.bias != nullptr && of.valid) v += p.bias[of.id];
  if (p.epilogue == RowsEpilogue::kCombine) {
    const bool mine = of.valid && ((p.neurons.masks[of.id] >> of.token) & 1U) != 0;
    if (of.valid)
      p.h[of.at] = mine ? GatedValue(p.activation, p.activation_threshold, p.gate[of.at], v) : 0.0F;
    return 0;
  }
  if (of.valid && p.out != nullptr) p.out[of.at] = v;
  return p.epilogue == RowsEpilogue::kStore ? 0 : Decide(p, of, v);
}

// Returns the rows of a tile that are live for any token, as bits.
__device__ inline unsigned LivingRows(const DeviceGemmRowsParams& p, const Tile& tile,
                                      unsigned lives) {
  const unsigned tokens = (1U << p.tokens) - 1;
  unsigned rows = 0;
  for (int row = 0; row < tile.rows; ++row)
    rows |= ((lives >> (row * p.tokens)) & tokens) != 0 ? 1U << row : 0U;
  return rows;
}

// The place of bit number n. Requires: there are more than n.
__device__ inline int PlaceOfBit(unsigned bits, int n) {
  for (; n > 0; --n) bits &= bits - 1;
  return __ffs(bits) - 1;
}

// h of a neuron that is live for any token: `gate` includes its bias, `up` does not.
__device__ inline void StoreGated(const DeviceGemmRowsParams& p, int id, int token, bool lives,
                                  float gate, float up) {
  if (p.up_bias != nullptr) up += p.up_bias[id];
  p.h[StartOf(token, p.stride) + id] =
      lives ? GatedValue(p.activation, p.activation_threshold, gate, up) : 0.0F;
}

// h of up's products: those of the k-th living row are in lanes k * tokens + token; `gate` is in
// the lanes of StoreProducts. All lanes of the warp call it.
__device__ inline void CombineLiving(const DeviceGemmRowsParams& p, const Tile& tile,
                                     unsigned lives, unsigned rows, float gate, float up,
                                     int lane) {
  const int k = lane / p.tokens, token = lane % p.tokens;
  const bool valid = k < __popc(rows);
  const int from = (valid ? PlaceOfBit(rows, k) : 0) * p.tokens + token;
  const float of_gate = __shfl_sync(0xFFFFFFFFU, gate, from);
  if (!valid) return;
  StoreGated(p, p.neurons.ids[tile.first + from / p.tokens], token, ((lives >> from) & 1U) != 0,
             of_gate, up);
}

// The end of a launch of GemmRows, in all its threads.
__device__ inline void EndRows(const DeviceGemmRowsParams& p) {
  if (p.epilogue == RowsEpilogue::kDecide || p.epilogue == RowsEpilogue::kGated)
    EndWithList(p.live, p.neurons.masks, p.weights.neurons);
}

// Blocks of a launch over a list of at most `rows` rows, `warps` in each.
int RowsGrid(int rows, int warps);

DeviceError GemmQuantizedRows(const DeviceGemmRowsParams& p, Stream stream);
// The same for many tokens. Requires: TilesFit (row_tile.h).
DeviceError GemmQuantizedRowTiles(const DeviceGemmRowsParams& p, Stream stream);
DeviceError GemmFloatRows(const DeviceGemmRowsParams& p, Stream stream);

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
