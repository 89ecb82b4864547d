//   block := scale:u8[4] codes:u8[32], of 64 columns: 16 for each scale, E4M3 without its sign;
//   byte i of a scale's eight has the codes, E2M1, of its columns i (low half) and i + 8.
// Source: ggml's block_nvfp4; llama.cpp's converter writes the factors.
#include "engine/model/held_nvfp4.h"

#include <algorithm>

#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/model/code_values.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

using kernels::DType;

constexpr int kNvfp4 = 40;  // GGUF's number
constexpr int kScales = 4, kColumns = 16, kBlockBytes = 36;
constexpr std::string_view kWeight = ".weight";

void Dequantize(const std::byte* block, float factor, float* out) {
  for (int s = 0; s < kScales; ++s) {
    const int code = std::to_integer<int>(block[s]);
    const float scale = code == 127 ? 0 : Fp8Values()[code & 127];
    const std::byte* codes = block + kScales + s * kColumns / 2;
    for (int i = 0; i < kColumns; ++i) {
      const int half = std::to_integer<int>(codes[i % 8]) >> (i / 8 * 4);
      out[s * kColumns + i] = Fp4Values()[half & 15] * scale * factor;  // rounded once
    }
  }
}

// The factor of each matrix: all are 1 if the file has none.
Result<std::vector<float>> FactorsOf(const ModelFile& model, const TensorInfo& stored,
                                     const std::string& name) {
  std::vector<float> factors(stored.slabs, 1.0F);
  const TensorInfo* tensor = model.Find(name);
  if (tensor == nullptr) return factors;
  if (tensor->type->dtype != DType::kF32 || tensor->rows != 1 || tensor->cols != stored.slabs)
    return base::InvalidArgument("tensor '", name, "' is ", tensor->type->name, " [", tensor->rows,
                                 ", ", tensor->cols, "], expected f32 [1, ", stored.slabs, "]");
  RETURN_IF_ERROR(model.ReadRows(*tensor, 0, 1, std::as_writable_bytes(std::span(factors))));
  return factors;
}

TensorInfo Held(const ModelFile& model, const TensorInfo& stored, std::vector<float> factors) {
  TensorInfo out = stored;
  out.type = &FileTypeOf(DType::kBF16);
  out.bytes = static_cast<std::uint64_t>(out.rows) * out.cols * out.type->block_bytes;
  out.order = {};
  out.source = std::make_shared<const RowSource>([&model, stored, factors = std::move(factors)](
                                                     std::int64_t row,
                                                     std::span<std::byte> to) -> Status {
    std::vector<std::byte> from(stored.row_bytes());
    RETURN_IF_ERROR(model.ReadRows(stored, row, 1, from));
    std::vector<float> floats(stored.cols);
    const float factor = factors[row / (stored.rows / stored.slabs)];
    const std::int64_t blocks = std::ssize(from) / kBlockBytes;
    for (std::int64_t b = 0; b < blocks; ++b)
      Dequantize(&from[b * kBlockBytes], factor, &floats[b * kScales * kColumns]);
    kernels::QuantizeRow(DType::kBF16, floats.data(), stored.columns(), base::Octets(to.data()));
    return OkStatus();
  });
  return out;
}

}  // namespace

Status HoldNvfp4(ModelFile& model) {
  int count = 0;
  std::vector<std::string> used;
  for (TensorInfo& tensor : model.tensors) {
    if (tensor.type->ggml_id != kNvfp4 || !tensor.name.ends_with(kWeight)) continue;
    const std::string module = tensor.name.substr(0, tensor.name.size() - kWeight.size());
    ASSIGN_OR_RETURN(auto factors, FactorsOf(model, tensor, module + ".scale"));
    tensor = Held(model, tensor, std::move(factors));
    used.insert(used.end(), {module + ".scale", module + ".input_scale"});
    ++count;
  }
  if (count == 0) return OkStatus();
  std::erase_if(model.tensors, [&](const TensorInfo& tensor) {
    return std::find(used.begin(), used.end(), tensor.name) != used.end();
  });
  base::LogWarning(count, " tensors of type nvfp4 are held as bf16, nearly four times the memory; ",
                   "`thermocline convert --quantize` makes a file that needs less");
  return OkStatus();
}

}  // namespace thermocline::model
