#include "engine/model/held_types.h"

#include <array>
#include <cstring>
#include <map>
#include <string>

#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "kernels/block_codecs.h"
#include "kernels/iq_codecs.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

using kernels::DType;

using Codec = void (*)(const std::uint8_t*, std::uint8_t*);

// Converts via floats, so the values are rounded again.
template <void (*dequantize)(const std::uint8_t*, float*)>
void ToQ4K(const std::uint8_t* block, std::uint8_t* q4k) {
  float floats[256];
  dequantize(block, floats);
  kernels::QuantizeQ4K(floats, q4k);
}

// The type in memory for a type of files. Q4_K's own error is a third of the error of grid types.
struct HeldType {
  int ggml_id;
  DType as;
  bool exact;
  Codec convert;
};
constexpr std::array kHeldTypes = {
    HeldType{34, DType::kTQ2_0, true, kernels::ConvertTq1ToTq2},
    HeldType{16, DType::kQ4_K, false, ToQ4K<kernels::DequantizeIq2Xxs>},
    HeldType{17, DType::kQ4_K, false, ToQ4K<kernels::DequantizeIq2Xs>},
    HeldType{22, DType::kQ4_K, false, ToQ4K<kernels::DequantizeIq2S>},
    HeldType{18, DType::kQ4_K, false, ToQ4K<kernels::DequantizeIq3Xxs>},
    HeldType{21, DType::kQ4_K, false, ToQ4K<kernels::DequantizeIq3S>},
};

const HeldType* FindHeldType(const FileType& type) {
  for (const HeldType& held : kHeldTypes) {
    if (held.ggml_id == type.ggml_id) return &held;
  }
  return nullptr;
}

// Returns `stored` with the row size of another type, without a source yet.
TensorInfo SizedAs(const TensorInfo& stored, DType type) {
  TensorInfo out = stored;
  out.type = &FileTypeOf(type);
  out.bytes = static_cast<std::uint64_t>(out.rows) * (out.cols / out.type->block_size) *
              out.type->block_bytes;
  out.order = {};
  return out;
}

TensorInfo Held(const ModelFile& model, const TensorInfo& stored, const HeldType& held) {
  TensorInfo out = SizedAs(stored, held.as);
  out.source = std::make_shared<const RowSource>(
      [&model, stored, convert = held.convert, to_bytes = out.type->block_bytes](
          std::int64_t row, std::span<std::byte> to) -> Status {
        std::vector<std::byte> from(stored.row_bytes());
        RETURN_IF_ERROR(model.ReadRows(stored, row, 1, from));
        const std::int64_t blocks = stored.cols / stored.type->block_size;
        for (std::int64_t b = 0; b < blocks; ++b)
          convert(base::Octets(&from[b * stored.type->block_bytes]),
                  base::Octets(&to[b * to_bytes]));
        return OkStatus();
      });
  return out;
}

// bitnet.cpp's ternary weights, as written on x86: 128 values in 32 bytes, value j in the bits from
// 6 - 2 (j / 32) on of byte j % 32, plus 1; the f32 scale follows the tensor. On Arm older versions
// wrote 64 values in 16 bytes, which cannot be detected in the file.
// Source: microsoft/BitNet, src/ggml-bitnet-mad.cpp.
constexpr int kI2S = 36;

Status ConvertI2S(const TensorInfo& tensor, float scale, std::span<const std::byte> from,
                  std::span<std::byte> to) {
  const std::uint16_t d = kernels::FloatToHalf(scale);
  constexpr std::size_t kBytes = 64;  // of the levels in a block of TQ2_0
  constexpr std::size_t kBlock = 66;  // bytes of a whole block: levels and an f16 scale
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto byte = static_cast<unsigned>(from[i]);
    if ((byte & byte >> 1 & 0x55U) != 0)
      return base::DataLoss("tensor '", tensor.name, "' of type i2_s holds a level of 3");
    // Reverses the order of the four pairs of bits.
    const unsigned pairs = (byte & 0x33U) << 2 | (byte >> 2 & 0x33U);
    to[i / kBytes * kBlock + i % kBytes] = static_cast<std::byte>(pairs << 4 | pairs >> 4);
  }
  for (std::size_t at = kBytes; at < to.size(); at += kBlock) std::memcpy(&to[at], &d, sizeof(d));
  return OkStatus();
}

TensorInfo HeldI2S(const ModelFile& model, const TensorInfo& stored) {
  TensorInfo out = SizedAs(stored, DType::kTQ2_0);
  out.source = std::make_shared<const RowSource>(
      [&model, stored](std::int64_t row, std::span<std::byte> to) -> Status {
        std::vector<std::byte> from(stored.row_bytes());
        RETURN_IF_ERROR(model.ReadRows(stored, row, 1, from));
        float scale = 0;
        RETURN_IF_ERROR(model.files[stored.file]->ReadAt(
            stored.offset + stored.bytes, std::as_writable_bytes(std::span(&scale, 1))));
        if (!(scale >= -65504 && scale <= 65504))  // the range of f16
          return base::DataLoss("tensor '", stored.name, "' of type i2_s has the scale ", scale);
        return ConvertI2S(stored, scale, from, to);
      });
  return out;
}

void Report(int ggml_id, int count) {
  const FileType& stored = *FindFileType(ggml_id);
  const HeldType& held = *FindHeldType(stored);
  const FileType& as = FileTypeOf(held.as);
  const std::string text =
      StrCat(count, " tensors of type ", stored.name, " are held as ", as.name, ", ",
             as.block_bytes, " bytes of memory for ", stored.block_bytes, " of the file");
  if (held.exact) return base::LogInfo(text, "; the weights are the same");
  base::LogWarning(text, ", and rounded once more");
}

}  // namespace

void HoldInNativeTypes(ModelFile& model) {
  std::map<int, int> counts;  // tensors by type
  int i2s = 0;
  for (TensorInfo& tensor : model.tensors) {
    if (tensor.type->ggml_id == kI2S && tensor.cols % 256 == 0) {
      ++i2s;
      tensor = HeldI2S(model, tensor);
      continue;
    }
    const HeldType* held = FindHeldType(*tensor.type);
    if (held == nullptr) continue;
    ++counts[tensor.type->ggml_id];
    tensor = Held(model, tensor, *held);
  }
  for (const auto& [id, count] : counts) Report(id, count);
  if (i2s > 0)
    base::LogWarning(i2s,
                     " tensors of type i2_s are read as bitnet.cpp writes them on x86 and held "
                     "as tq2_0; a file written on Arm may lie otherwise, and would give nonsense");
}

}  // namespace thermocline::model
