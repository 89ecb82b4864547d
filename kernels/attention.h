// Attention over the KV cache, in partial results that can be merged.
//
//   p_s = exp(q.k_s - max),  out = sum_s p_s v_s,  total = sum_s p_s
// for the heads of one kv head's group and several tokens at once, so that its K and V are read
// once.
//
// The cache holds blocks of kKvBlock positions. In a block, one kv head's keys are 4 panels of 16
// positions, laid as the 16 rows of a weight panel [16, Dh] of F16, Q8_0 or Q4_0 (kernels/types.h):
// scores are the product of a matrix that grows. Values are panels of 16 dimensions:
//   F16    [Dh / 16][kKvBlock][16] f16: the weight panel of V transposed
//   Q8_0   f16 d[Dh / 32][kKvBlock], then [Dh / 16][kKvBlock][16] i8; value = d * q. GPUs have it
//   Q8     keys as Q8_0; f16 d[kKvBlock], then [Dh / 16][kKvBlock / 4][16][4] i8: quads of
//          positions, so that the weighted sum is one of bytes (kernels/cpu/attention_bytes.inl.h)
//   Q4_0   f16 d[Dh / 32][kKvBlock], then [Dh / 16][kKvBlock][8]: low nibbles are dimensions 0..7,
//          high nibbles 8..15; value = d * (nibble - 8)
// The last panel of dimensions is padded with zeros.
#pragma once

#include "kernels/host_device.h"
#include "kernels/types.h"

namespace thermocline::kernels {

inline constexpr int kHeadDimMax = 512;
inline constexpr int kKvBlock = 64;          // positions of a cache block
inline constexpr int kAttentionChunk = 256;  // positions of one partial result, aligned

enum class KvType : std::uint8_t { kF16, kQ8_0, kF32, kQ4_0, kQ8 };

inline constexpr DType KeyType(KvType type) {
  constexpr DType kTypes[] = {DType::kF16, DType::kQ8_0, DType::kF32, DType::kQ4_0, DType::kQ8_0};
  return kTypes[static_cast<int>(type)];
}
// True if keys are blocks that multiply the Q8 form of queries.
THERMOCLINE_HOST_DEVICE inline constexpr bool IsQuantized(KvType type) {
  return type == KvType::kQ8_0 || type == KvType::kQ4_0 || type == KvType::kQ8;
}
THERMOCLINE_HOST_DEVICE inline constexpr int RoundUp(int n, int multiple) {
  return (n + multiple - 1) / multiple * multiple;
}
// The form in which the CPU computes with a type, which for q8_0 differs from a GPU's.
inline constexpr KvType HostKvType(KvType type) {
  return type == KvType::kQ8_0 ? KvType::kQ8 : type;
}
// Bytes of one kv head's keys (KeyBlockBytes) or values (ValueBlockBytes) in one block. Blocks
// require Dh a multiple of 32.
inline constexpr std::size_t KeyBlockBytes(KvType type, int head_dim) {
  return kKvBlock / kPanelRows * PanelBytes(KeyType(type), head_dim);
}
inline constexpr std::size_t ValueBlockBytes(KvType type, int head_dim) {
  const std::size_t padded = RoundUp(head_dim, kPanelRows), values = padded * kKvBlock;
  if (type == KvType::kF32) return 4 * values;
  if (type == KvType::kF16) return 2 * values;
  if (type == KvType::kQ8) return values + 2 * kKvBlock;
  return (type == KvType::kQ4_0 ? values / 2 : values) +
         2 * kKvBlock * (head_dim / kActivationBlock);
}

// Writes one position's key and value of one kv head into its block. `slot`: position in the block.
struct StoreKvParams {
  KvType type = KvType::kF16;
  int head_dim = 0;
  int slot = 0;                // 0 .. kKvBlock - 1
  const float* key = nullptr;  // [head_dim]
  const float* value = nullptr;
  std::uint8_t* keys = nullptr;    // of the block
  std::uint8_t* values = nullptr;  // of the block
};
void StoreKeyAndValue(const StoreKvParams& params);

// The softmax's state over some positions, for `group` heads.
struct AttentionState {
  float* max = nullptr;    // [group] of the scores
  float* total = nullptr;  // [group]
  float* out = nullptr;    // [group, head_dim], not yet divided by the total

  AttentionState Row(std::ptrdiff_t row, int head_dim) const {
    return {max + row, total + row, out + row * head_dim};
  }
};

// The positions [begin, end) that a token sees: not empty, inside one aligned chunk.
struct PositionSpan {
  int begin = 0;
  int end = 0;
};

// The most rows that share the loads of a block, unless one token's heads are more. A token has a
// row for each of its heads.
inline constexpr int kAttentionRows = 48;

struct AttentionParams {
  Activations q;  // [tokens, group, head_dim], scaled by 1 / sqrt(Dh) or by the model's own factor;
                  // the Q8 form is read if the keys are quantised
  int group = 1;  // heads that share the kv head
  int head_dim = 0;
  KvType type = KvType::kF16;
  const std::uint8_t* const* blocks = nullptr;  // of the whole cache; block i: positions 64i..
  std::size_t keys_offset = 0;                  // of this layer and kv head in a block
  std::size_t values_offset = 0;
  // Tokens of one sequence whose K and V are stored. Neither begins nor ends decrease; all spans
  // lie in the same chunk. Each token gets the bits that it gets alone.
  int tokens = 1;
  const PositionSpan* spans = nullptr;  // [tokens]
  float* scores = nullptr;              // [tokens * group, kKvBlock] scratch
  float score_cap = 0;                  // scores become cap tanh(score / cap); 0: they stay
  // [group], or null: a score falls by its head's slope times the distance of the position from the
  // token's, positions[token]. Source: Press et al. 2022 (ALiBi), to both sides.
  const float* slopes = nullptr;
  const int* positions = nullptr;  // [tokens]
  // The vector that the chunk's keys were stored without [head_dim], or null: its product with a
  // query, which the softmax's maximum gets back, is the same for all positions. Without a cap.
  const float* key_origin = nullptr;
  AttentionState state;  // written: [tokens * group], out [tokens * group, head_dim]
};

// into = the softmax over the positions of both. Same bits in every backend.
void MergeAttention(const AttentionState& part, int group, int head_dim,
                    const AttentionState& into);
void CopyAttention(const AttentionState& part, int group, int head_dim, const AttentionState& into);
// out = state.out / total. [group, head_dim]. `sinks` [group], or null: scores without a value,
// added to the total. Source: Xiao et al. 2023; gpt-oss.
void FinishAttention(const AttentionState& state, int group, int head_dim, const float* sinks,
                     float* out);

}  // namespace thermocline::kernels
