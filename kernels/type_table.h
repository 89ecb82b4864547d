// The element types and their properties: one row for each. Adding a type begins here.
#pragma once

#include <cstdint>
#include <type_traits>

namespace thermocline::kernels {

// CPUs have kernels for all, GPUs for the first kNumDeviceDTypes: rows of the others are converted
// where they are loaded for a GPU.
enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kTQ2_0
};
inline constexpr int kNumDeviceDTypes = 11;
inline constexpr int kNumDTypes = 17;

// The places of a quantised type's parts in a panel's block. Bytes; -1 = the type has none.
struct PanelLayout {
  int offset = 32;        // a level's value is level - offset; of codebooks, it is value + offset
  int min = -1;           // f16 m[16] or dmin[16]
  int header = 288;       // scales, before the levels
  int fifth_bits = 0;     // 1 if each 32 columns' nibbles follow a quad of fifth bits
  int group_bytes = 384;  // levels of 32 columns
  bool halves = false;    // scales are of 16 columns, not of 32
  bool two_bits = false;  // levels are two bits, four quads in one
  bool codebook = false;  // a level is a place in a codebook
};

// All properties of a type; adding one begins with its row.
struct DTypeTraits {
  DType type;
  const char* name;    // as in GGUF files' types, lower case
  int block_size;      // columns in a block
  int block_bytes;     // bytes of one row's block
  bool quantized;      // multiplies quantised activations
  bool summable;       // SumRows reads it
  int gguf_type;       // of a tensor in GGUF files. Source: ggml's table of types
  int gguf_file_type;  // general.file_type. Source: ggml's enumeration (the K types as their medium
                       // mixes)
  PanelLayout panel = {};
};

inline constexpr DTypeTraits kDTypeTraits[kNumDTypes] = {
    {.type = DType::kF32,
     .name = "f32",
     .block_size = 1,
     .block_bytes = 4,
     .quantized = false,
     .summable = true,
     .gguf_type = 0,
     .gguf_file_type = 0},
    {.type = DType::kF16,
     .name = "f16",
     .block_size = 1,
     .block_bytes = 2,
     .quantized = false,
     .summable = true,
     .gguf_type = 1,
     .gguf_file_type = 1},
    {.type = DType::kBF16,
     .name = "bf16",
     .block_size = 1,
     .block_bytes = 2,
     .quantized = false,
     .summable = true,
     .gguf_type = 30,
     .gguf_file_type = 32},
    {.type = DType::kQ8_0,
     .name = "q8_0",
     .block_size = 32,
     .block_bytes = 34,
     .quantized = true,
     .summable = true,
     .gguf_type = 8,
     .gguf_file_type = 7,
     .panel = {.offset = 128, .min = -1, .header = 32, .fifth_bits = 0, .group_bytes = 512}},
    {.type = DType::kQ4_0,
     .name = "q4_0",
     .block_size = 32,
     .block_bytes = 18,
     .quantized = true,
     .summable = true,
     .gguf_type = 2,
     .gguf_file_type = 2,
     .panel = {.offset = 8, .min = -1, .header = 32, .fifth_bits = 0, .group_bytes = 256}},
    {.type = DType::kQ4_1,
     .name = "q4_1",
     .block_size = 32,
     .block_bytes = 20,
     .quantized = true,
     .summable = true,
     .gguf_type = 3,
     .gguf_file_type = 3,
     .panel = {.offset = 0, .min = 32, .header = 64, .fifth_bits = 0, .group_bytes = 256}},
    {.type = DType::kQ5_0,
     .name = "q5_0",
     .block_size = 32,
     .block_bytes = 22,
     .quantized = true,
     .summable = false,
     .gguf_type = 6,
     .gguf_file_type = 8,
     .panel = {.offset = 16, .min = -1, .header = 32, .fifth_bits = 1, .group_bytes = 320}},
    {.type = DType::kQ5_1,
     .name = "q5_1",
     .block_size = 32,
     .block_bytes = 24,
     .quantized = true,
     .summable = false,
     .gguf_type = 7,
     .gguf_file_type = 9,
     .panel = {.offset = 0, .min = 32, .header = 64, .fifth_bits = 1, .group_bytes = 320}},
    {.type = DType::kQ4_K,
     .name = "q4_k",
     .block_size = 256,
     .block_bytes = 144,
     .quantized = true,
     .summable = true,
     .gguf_type = 12,
     .gguf_file_type = 15,
     .panel = {.offset = 0, .min = 32, .header = 256, .fifth_bits = 0, .group_bytes = 256}},
    {.type = DType::kQ5_K,
     .name = "q5_k",
     .block_size = 256,
     .block_bytes = 176,
     .quantized = true,
     .summable = false,
     .gguf_type = 13,
     .gguf_file_type = 17,
     .panel = {.offset = 0, .min = 32, .header = 256, .fifth_bits = 1, .group_bytes = 320}},
    {.type = DType::kQ6_K,
     .name = "q6_k",
     .block_size = 256,
     .block_bytes = 210,
     .quantized = true,
     .summable = false,
     .gguf_type = 14,
     .gguf_file_type = 18,
     .panel = {.offset = 32,
               .min = -1,
               .header = 288,
               .fifth_bits = 0,
               .group_bytes = 384,
               .halves = true}},
    {.type = DType::kQ2_K,
     .name = "q2_k",
     .block_size = 256,
     .block_bytes = 84,
     .quantized = true,
     .summable = false,
     .gguf_type = 10,
     .gguf_file_type = 10,
     .panel = {.offset = 0,
               .min = 32,
               .header = 320,
               .fifth_bits = 0,
               .group_bytes = 128,
               .halves = true,
               .two_bits = true}},
    {.type = DType::kQ3_K,
     .name = "q3_k",
     .block_size = 256,
     .block_bytes = 110,
     .quantized = true,
     .summable = false,
     .gguf_type = 11,
     .gguf_file_type = 12,
     .panel = {.offset = 4,
               .min = -1,
               .header = 224,
               .fifth_bits = 0,
               .group_bytes = 192,
               .halves = true}},
    {.type = DType::kIQ4_NL,
     .name = "iq4_nl",
     .block_size = 32,
     .block_bytes = 18,
     .quantized = true,
     .summable = false,
     .gguf_type = 20,
     .gguf_file_type = 25,
     .panel = {.offset = 128,
               .min = -1,
               .header = 32,
               .fifth_bits = 0,
               .group_bytes = 256,
               .codebook = true}},
    {.type = DType::kIQ4_XS,
     .name = "iq4_xs",
     .block_size = 256,
     .block_bytes = 136,
     .quantized = true,
     .summable = false,
     .gguf_type = 23,
     .gguf_file_type = 30,
     .panel = {.offset = 128,
               .min = -1,
               .header = 128,
               .fifth_bits = 0,
               .group_bytes = 256,
               .codebook = true}},
    {.type = DType::kMXFP4,
     .name = "mxfp4",
     .block_size = 32,
     .block_bytes = 17,
     .quantized = true,
     .summable = false,
     .gguf_type = 39,
     .gguf_file_type = 38,
     .panel = {.offset = 16,
               .min = -1,
               .header = 16,
               .fifth_bits = 0,
               .group_bytes = 256,
               .codebook = true}},
    {.type = DType::kTQ2_0,
     .name = "tq2_0",
     .block_size = 256,
     .block_bytes = 66,
     .quantized = true,
     .summable = true,
     .gguf_type = 35,
     .gguf_file_type = 37,
     .panel = {.offset = 1,
               .min = -1,
               .header = 32,
               .fifth_bits = 0,
               .group_bytes = 128,
               .two_bits = true}},
};
inline constexpr const DTypeTraits& Traits(DType type) {
  return kDTypeTraits[static_cast<int>(type)];
}
static_assert([] {
  for (int i = 0; i < kNumDTypes; ++i)
    if (static_cast<int>(kDTypeTraits[i].type) != i) return false;
  return true;
}());

// Calls body(std::integral_constant<DType, type>()): the only place that chooses code instantiated
// per type.
template <int kFirst = 0, typename Body>
inline auto ForDType(DType type, const Body& body) {
  if constexpr (kFirst + 1 < kNumDTypes) {
    if (static_cast<int>(type) != kFirst) return ForDType<kFirst + 1>(type, body);
  }
  return body(std::integral_constant<DType, static_cast<DType>(kFirst)>());
}
inline constexpr bool HasDeviceKernels(DType type) {
  return static_cast<int>(type) < kNumDeviceDTypes;
}

}  // namespace thermocline::kernels
