// Rows of GGUF blocks into panels (layouts in kernels/types.h), and single rows out of them.
//
// Packing works on words of four neighbouring columns, because loading a model must not wait for
// it.
#include <cstring>

#include "kernels/block_codecs.h"
#include "kernels/layout/codecs.h"
#include "kernels/layout/panel_view.h"
#include "kernels/quantize.h"

namespace thermocline::kernels {
namespace {

constexpr std::uint32_t kLowNibbles = 0x0F0F0F0FU;

// Word `i` of quad-interleaved memory of row `lane`.
std::uint8_t* QuadOf(std::uint8_t* quads, int i, int lane) {
  return quads + i * kQuadBytes + lane * 4;
}

// 16 bytes whose low nibbles are columns 0..15, high nibbles 16..31: as Q4_0 and its kin store
// them.
void PackNibbles(const std::uint8_t* nibbles, int lane, std::uint8_t* quads) {
  for (int i = 0; i < 4; ++i) std::memcpy(QuadOf(quads, i, lane), nibbles + 4 * i, 4);
}

// Bit c of `bits` belongs to column c.
void PackFifthBits(std::uint32_t bits, int lane, std::uint8_t* quad) {
  std::uint32_t out = 0;
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t four = (bits >> (4 * i)) & 15;
    const std::uint32_t spread = (four & 1) | (four & 2) << 7 | (four & 4) << 14 | (four & 8) << 21;
    out |= spread << i;
  }
  Store32(QuadOf(quad, 0, lane), out);
}

// Sixteen numbers of six bits as three words.
void PackSixBitNumbers(const int (&numbers)[16], int lane, std::uint8_t* words) {
  std::uint32_t word[3] = {};
  for (int k = 0; k < 15; ++k)
    word[k / 5] |= static_cast<std::uint32_t>(numbers[k]) << (6 * (k % 5));
  const std::uint32_t last = numbers[15];
  for (int w = 0; w < 3; ++w)
    Store32(words + w * kQuadBytes + lane * 4, word[w] | ((last >> (2 * w)) & 3) << 30);
}

// Bit `bit` of each of 32 bytes as a quad's word.
std::uint32_t HighBits(const std::uint8_t* bytes, int bit) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 8; ++i) bits |= ((Load32(bytes + 4 * i) >> bit) & 0x01010101U) << i;
  return bits;
}

// Sub-block `sub` of 16 columns in a plane 2x32 (block_codecs.h) as a quad's word.
std::uint32_t TwoBits(const std::uint8_t* plane, int sub) {
  const std::uint8_t* bytes = plane + sub / 8 * 32 + sub % 2 * 16;
  const int shift = sub % 8 / 2 * 2;
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= ((Load32(bytes + 4 * i) >> shift) & 0x03030303U) << (2 * i);
  return bits;
}

// Returns the value of column `col` of a quantised block, rounded as DequantizeRow rounds.
float PanelValue(DType type, const std::uint8_t* block, int lane, int col) {
  const PanelLayout layout = LayoutOf(type);
  const auto level = static_cast<float>(PanelLevel(type, block, lane, col) - layout.offset);
  const float d = PanelScale(type, block, lane);
  if (!IsBlockOf256(type))
    return layout.min >= 0 ? d * level + PanelHalf(block, layout.min, lane) : d * level;
  const ScaleAndMin numbers = PanelNumbers(type, block, lane, col / (HasHalves(type) ? 16 : 32));
  const float product = Scaled(d, numbers.scale) * level;
  if (layout.min < 0) return product;
  return product - Scaled(PanelHalf(block, layout.min, lane), numbers.min);
}

}  // namespace

void PackQ8_0(DType, const std::uint8_t* block, int lane, std::uint8_t* out) {
  std::memcpy(out + 2 * lane, block, 2);
  for (int i = 0; i < 8; ++i)
    Store32(QuadOf(out + 32, i, lane), Load32(block + 2 + 4 * i) ^ 0x80808080U);  // q + 128
}

// Blocks of 32 columns with nibbles.
void PackBlock32(DType type, const std::uint8_t* block, int lane, std::uint8_t* out) {
  const PanelLayout layout = LayoutOf(type);
  if (type == DType::kMXFP4) {
    out[lane] = block[0];
  } else {
    std::memcpy(out + 2 * lane, block, 2);
  }
  if (layout.min >= 0) std::memcpy(out + layout.min + 2 * lane, block + 2, 2);
  const std::uint8_t* levels = block + layout.header / kPanelRows;
  std::uint8_t* quads = out + layout.header;
  if (layout.fifth_bits != 0) {
    PackFifthBits(Load32(levels), lane, quads);
    levels += 4;
    quads += kQuadBytes;
  }
  PackNibbles(levels, lane, quads);
}

// Sub-blocks 2j and 2j + 1 share 32 bytes in GGUF: low nibbles and high nibbles.
void PackQ4KOrQ5K(DType type, const std::uint8_t* block, int lane, std::uint8_t* out) {
  std::memcpy(out + 2 * lane, block, 2);
  std::memcpy(out + 32 + 2 * lane, block + 2, 2);
  int numbers[16];
  for (int k = 0; k < 8; ++k) {
    const ScaleAndMin pair = ScaleMinK4(block + 4, k);
    numbers[k] = pair.scale;
    numbers[8 + k] = pair.min;
  }
  PackSixBitNumbers(numbers, lane, out + 64);
  const bool fifth = type == DType::kQ5_K;
  const std::uint8_t *high = block + 16, *low = block + (fifth ? 48 : 16);
  const int group_bytes = LayoutOf(type).group_bytes;
  for (int sub = 0; sub < 8; ++sub) {
    std::uint8_t* quads = out + 256 + sub * group_bytes;
    if (fifth) {
      Store32(QuadOf(quads, 0, lane), HighBits(high, sub));
      quads += kQuadBytes;
    }
    const int shift = sub % 2 * 4;
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t first = (Load32(low + sub / 2 * 32 + 4 * i) >> shift) & kLowNibbles;
      const std::uint32_t second = (Load32(low + sub / 2 * 32 + 16 + 4 * i) >> shift) & kLowNibbles;
      Store32(QuadOf(quads, i, lane), first | second << 4);
    }
  }
}

void PackQ6K(DType, const std::uint8_t* block, int lane, std::uint8_t* out) {
  std::memcpy(out + 2 * lane, block + 208, 2);
  for (int sub = 0; sub < 16; ++sub) out[32 + sub * 16 + lane] = block[192 + sub];
  for (int sub = 0; sub < 16; ++sub) {
    // Sixteen columns: half of the block, quarter of the half, place in the quarter.
    const int half = sub / 8, quarter = sub % 8 / 2, at = sub % 2 * 16;
    const std::uint8_t* low = block + half * 64 + quarter % 2 * 32 + at;
    const int shift = quarter / 2 * 4;
    std::uint8_t* quads = out + 288 + sub * 192;
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t first = (Load32(low + 8 * i) >> shift) & kLowNibbles;
      const std::uint32_t second = (Load32(low + 8 * i + 4) >> shift) & kLowNibbles;
      Store32(QuadOf(quads, i, lane), first | second << 4);
    }
    Store32(QuadOf(quads, 2, lane), TwoBits(block + 128, sub));
  }
}

void PackQ2K(DType, const std::uint8_t* block, int lane, std::uint8_t* out) {
  std::memcpy(out + 2 * lane, block + 80, 2);
  std::memcpy(out + 32 + 2 * lane, block + 82, 2);
  for (int i = 0; i < 4; ++i) std::memcpy(QuadOf(out + 64, i, lane), block + 4 * i, 4);
  for (int sub = 0; sub < 16; ++sub)
    Store32(QuadOf(out + 320, sub, lane), TwoBits(block + 16, sub));
}

void PackQ3K(DType, const std::uint8_t* block, int lane, std::uint8_t* out) {
  std::memcpy(out + 2 * lane, block + 108, 2);
  int numbers[16];
  for (int sub = 0; sub < 16; ++sub) numbers[sub] = ScaleQ3K(block + 96, sub) + 32;
  PackSixBitNumbers(numbers, lane, out + 32);
  for (int group = 0; group < 8; ++group) {
    std::uint32_t level[8];  // of four columns
    for (int i = 0; i < 8; ++i) {
      level[i] = (TwoBits(block + 32, 2 * group + i / 4) >> (i % 4 * 2)) & 0x03030303U;
      level[i] |= ((Load32(block + 4 * i) >> group) & 0x01010101U) << 2;
    }
    const std::uint32_t third = ((level[6] >> 2) & 0x01010101U) | ((level[7] >> 1) & 0x02020202U);
    const std::uint32_t last[3] = {level[6] & 0x03030303U, level[7] & 0x03030303U, third};
    for (int i = 0; i < 3; ++i)
      Store32(QuadOf(out + 224 + group * 192, i, lane),
              level[2 * i] | level[2 * i + 1] << 3 | last[i] << 6);
  }
}

void PackTq2(DType, const std::uint8_t* block, int lane, std::uint8_t* out) {
  std::memcpy(out + 2 * lane, block + 64, 2);
  for (int sub = 0; sub < 16; ++sub) Store32(QuadOf(out + 32, sub, lane), TwoBits(block, sub));
}

void PackIq4Xs(DType, const std::uint8_t* block, int lane, std::uint8_t* out) {
  std::memcpy(out + 2 * lane, block, 2);
  std::uint32_t number[8], word = 0;
  for (int k = 0; k < 8; ++k) number[k] = ScaleIq4Xs(block, k) + 32;
  for (int k = 0; k < 5; ++k) word |= number[k] << (6 * k);
  const auto half = static_cast<std::uint16_t>(number[5] | number[6] << 6 | (number[7] >> 2) << 12);
  std::memcpy(out + 32 + 2 * lane, &half, 2);
  Store32(QuadOf(out + 64, 0, lane), word | (number[7] & 3) << 30);
  for (int sub = 0; sub < 8; ++sub) PackNibbles(block + 8 + 16 * sub, lane, out + 128 + 256 * sub);
}

void PackFloat(DType type, const std::uint8_t* block, int lane, std::uint8_t* out) {
  const int bytes = Traits(type).block_bytes;
  std::memcpy(out + StartOf(lane, bytes), block, bytes);
}

void PackPanel(DType type, const std::uint8_t* rows, int num_rows, int cols, std::uint8_t* panel) {
  const DTypeTraits& traits = Traits(type);
  const int block_bytes = traits.block_bytes;
  if (num_rows < kPanelRows) std::memset(panel, 0, PanelBytes(type, cols));
  for (int b = 0; b < cols / traits.block_size; ++b) {
    std::uint8_t* out = panel + StartOf(b, kPanelRows * block_bytes);
    for (int lane = 0; lane < num_rows; ++lane) {
      CodecOf(type).pack(type, rows + lane * RowBytes(type, cols) + StartOf(b, block_bytes), lane,
                         out);
    }
  }
}

void DequantizePackedRow(const PackedMatrix& matrix, int row, float* out) {
  const DTypeTraits& traits = Traits(matrix.type);
  const int lane = row % kPanelRows;
  const std::uint8_t* block = matrix.panel(row / kPanelRows);
  for (int c = 0; c < matrix.cols; c += traits.block_size) {
    if (traits.quantized) {
      for (int i = 0; i < traits.block_size; ++i)
        out[c + i] = PanelValue(matrix.type, block, lane, i);
    } else {
      DequantizeRow(matrix.type, block + lane * traits.block_bytes, 1, out + c);
    }
    block += kPanelRows * traits.block_bytes;
  }
}

}  // namespace thermocline::kernels
