// Rows of kernels/rows.h on their way to the tensor cores: 256 columns of each in shared memory.
//
// 256 columns of a row are one stretch of bytes, a multiple of 16 but for Q6_K, whose stretch
// begins at any even address: it is copied from the multiple of 16 before it. Copies are
// asynchronous (cp.async), while the tile before is multiplied. A row has the words of a panel's
// lane, so panel_group.h decodes them. Requires: columns a multiple of 256.
#pragma once

#include "kernels/cuda/panel_group.h"
#include "kernels/cuda/row_block.h"
#include "kernels/device_sparse.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

inline constexpr int kTileColumns = 256, kTileBlocks = kTileColumns / 32;

inline bool TilesFit(const DeviceRows& rows) { return rows.cols % kTileColumns == 0; }

// 256 columns of a row, in shared memory.
template <DType type>
class RowStretch {
 public:
  using Row = RowTraits<type>;
  static constexpr int kBytes =
      kTileColumns / SizesOf<type>::kBlockSize * SizesOf<type>::kBlockBytes;
  static constexpr bool kAligned = kBytes % 16 == 0;
  static constexpr int kPieces = (kBytes + (kAligned ? 0 : 14) + 15) / 16;  // copies of 16 bytes
  static constexpr int kLevels = Row::kIsQ6 ? 0 : 16 * Row::kHalves;        // where the words begin

  __device__ __forceinline__ explicit RowStretch(const std::uint8_t* data) : data_(data) {}

  // Returns the offset of a stretch at `from` from the multiple of 16 that its copy begins at.
  static __device__ __forceinline__ int Shift(const std::uint8_t* from) {
    return kAligned ? 0 : static_cast<int>(reinterpret_cast<std::uintptr_t>(from) & 15U);
  }
  // Starts copying piece `piece` of the stretch at `from` to `to`, of a row that ends at `end`; if
  // the row is not there, zeros.
  static __device__ __forceinline__ void Copy(std::uint8_t* to, const std::uint8_t* from,
                                              const std::uint8_t* end, int piece, bool there) {
    const std::uint8_t* at = from - Shift(from) + 16 * piece;
    int bytes = 16;
    if constexpr (!kAligned) {
      const auto left = static_cast<int>(end - at);
      bytes = left < 0 ? 0 : left < 16 ? left : 16;
      if (bytes == 0) at = from - Shift(from);
    }
    ptx::CopyAsync<16>(to + 16 * piece, at, there ? bytes : 0);
  }

  __device__ __forceinline__ unsigned Half(int at) const {
    return *reinterpret_cast<const std::uint16_t*>(data_ + at);
  }
  __device__ __forceinline__ unsigned Word(int at) const {
    if constexpr (kAligned) return *reinterpret_cast<const unsigned*>(data_ + at);
    return Half(at) | Half(at + 2) << 16;
  }
  // Word j of block `block`.
  __device__ __forceinline__ unsigned LevelWord(int block, int j) const {
    return Word(kLevels + (block * Row::kWords + j) * 4);
  }
  __device__ __forceinline__ Pair Numbers(int block) const {
    RowNumbers<type> numbers;
    if constexpr (Row::kIsQ6) {
      numbers.words[0] = data_[192 + 2 * block];
      numbers.words[1] = data_[193 + 2 * block];
    } else if constexpr (Row::kIsK) {
#pragma unroll
      for (int w = 0; w < 3; ++w) numbers.words[w] = Word(4 + 4 * w);
    } else {
      numbers.words[0] = Half(2 * block);
      numbers.words[1] = Row::kHasMin ? Half(16 + 2 * block) : 0;
    }
    return numbers.Decode(block);
  }
  // K types: d and dmin.
  __device__ __forceinline__ Pair Block() const {
    return {FromHalfBits(Half(Row::kIsQ6 ? 208 : 0)), Row::kHasMin ? FromHalfBits(Half(2)) : 0};
  }
  // A block's weights are factor * level + minimum. Not of Q6_K.
  __device__ __forceinline__ float Factor(int block) const {
    if constexpr (Row::kIsK) return Scaled(FromHalfBits(Half(0)), SixBit(block));
    return FromHalfBits(Half(2 * block));
  }
  __device__ __forceinline__ float Minimum(int block) const {
    if constexpr (Row::kIsK) return Scaled(-FromHalfBits(Half(2)), SixBit(8 + block));
    return FromHalfBits(Half(16 + 2 * block));
  }

 private:
  __device__ __forceinline__ int SixBit(int k) const {
    const unsigned words[3] = {Word(4), Word(8), Word(12)};
    return SixBits(words, k);
  }

  const std::uint8_t* data_;
};

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
