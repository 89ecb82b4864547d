#include "engine/model/huggingface/bitnet.h"

#include <algorithm>
#include <cmath>

#include "engine/base/bytes.h"
#include "engine/model/huggingface/fields.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

using kernels::DType;

constexpr int kValuesPerByte = 4;
constexpr std::string_view kScale = "_scale";

bool IsLayerMatrix(const TensorInfo& tensor) {
  return tensor.name.starts_with("blk.") && tensor.name.ends_with(".weight") &&
         tensor.num_dims == 2;
}

// Returns the type that holds ternary rows of `cols` columns exactly. Q4_0 would round: its largest
// level is not the opposite of its smallest.
DType TernaryType(std::int64_t cols) {
  for (const DType type : {DType::kTQ2_0, DType::kQ8_0}) {
    if (cols % kernels::Traits(type).block_size == 0) return type;
  }
  return DType::kF32;
}

Status ReadFloats(const ModelFile& model, const TensorInfo& tensor, std::int64_t row,
                  std::span<float> out) {
  std::vector<std::byte> bytes(tensor.row_bytes());
  RETURN_IF_ERROR(model.ReadRows(tensor, row, 1, bytes));
  kernels::DequantizeRow(*tensor.type->dtype, base::Octets(bytes.data()), tensor.columns(),
                         out.data());
  return OkStatus();
}

// Returns a ternary tensor of `rows` rows with the values of `floats`.
TensorInfo Ternary(const TensorInfo& stored, std::int64_t rows, FloatSource floats) {
  TensorInfo out = stored;
  const DType type = TernaryType(stored.cols);
  out.type = &FileTypeOf(type);
  out.rows = rows;
  out.bytes = rows * kernels::RowBytes(type, out.columns());
  out.order = {};
  out.source =
      std::make_shared<const RowSource>([floats = std::move(floats), type, cols = out.columns()](
                                            std::int64_t row, std::span<std::byte> to) -> Status {
        std::vector<float> values(cols);
        RETURN_IF_ERROR(floats(row, values));
        kernels::QuantizeRow(type, values.data(), cols, base::Octets(to.data()));
        return OkStatus();
      });
  return out;
}

// Row r of the matrix is stored in two bits of the bytes of row r mod (rows / 4).
TensorInfo Packed(const ModelFile& model, const TensorInfo& stored, float scale) {
  return Ternary(stored, stored.rows * kValuesPerByte,
                 [&model, stored, scale](std::int64_t row, std::span<float> out) -> Status {
                   std::vector<std::byte> bytes(stored.row_bytes());
                   RETURN_IF_ERROR(model.ReadRows(stored, row % stored.rows, 1, bytes));
                   const auto shift = static_cast<int>(row / stored.rows) * 2;
                   for (std::size_t i = 0; i < out.size(); ++i) {
                     const int level = (std::to_integer<int>(bytes[i]) >> shift & 3) - 1;
                     out[i] = scale * static_cast<float>(level);
                   }
                   return OkStatus();
                 });
}

Result<float> MeanOf(const ModelFile& model, const TensorInfo& tensor) {
  constexpr double kMeanMin = 1e-5;
  std::vector<float> row(tensor.cols);
  double sum = 0;
  for (std::int64_t r = 0; r < tensor.rows; ++r) {
    RETURN_IF_ERROR(ReadFloats(model, tensor, r, row));
    for (const float value : row) sum += std::fabs(double{value});
  }
  const double count = static_cast<double>(tensor.rows) * static_cast<double>(tensor.cols);
  return static_cast<float>(std::max(sum / count, kMeanMin));
}

TensorInfo Rounded(const ModelFile& model, const TensorInfo& stored, float mean) {
  return Ternary(stored, stored.rows,
                 [&model, stored, mean](std::int64_t row, std::span<float> out) -> Status {
                   RETURN_IF_ERROR(ReadFloats(model, stored, row, out));
                   for (float& value : out)
                     value = mean * std::clamp(std::nearbyint(value / mean), -1.0F, 1.0F);
                   return OkStatus();
                 });
}

Result<TensorInfo> UnpackOne(const BitNetWeights& weights, const ModelFile& model,
                             const TensorInfo& stored) {
  if (weights.form == BitNetWeights::Form::kRounded) {
    if (!stored.type->dtype.has_value())
      return base::InvalidArgument("tensor '", stored.name, "' is of type ", stored.type->name,
                                   ", but the configuration says that it is not packed");
    ASSIGN_OR_RETURN(const float mean, MeanOf(model, stored));
    return Rounded(model, stored, mean);
  }
  const TensorInfo* scale = model.Find(stored.name + std::string(kScale));
  if (scale == nullptr || scale->cols != 1 || scale->rows != 1 || stored.type->dtype.has_value())
    return base::InvalidArgument("tensor '", stored.name, "' is not packed with a tensor '",
                                 stored.name, kScale, "' of one number");
  float value = 0;
  RETURN_IF_ERROR(ReadFloats(model, *scale, 0, {&value, 1}));
  if (!std::isfinite(value) || value == 0)
    return base::InvalidArgument("tensor '", scale->name, "' is ", value);
  return Packed(model, stored, weights.divides ? 1 / value : value);
}

}  // namespace

Result<BitNetWeights> ReadBitNetWeights(const Json& config) {
  const Json* quantization = config.Find("quantization_config");
  BitNetWeights out;
  if (quantization == nullptr || !quantization->is_object()) return out;
  const auto text = [&](const char* key, const char* absent) {
    return hf::String(*quantization, {key}, absent);
  };
  const std::string linear = text("linear_class", "bitlinear"),
                    mode = text("quantization_mode", "offline");
  if (text("quant_method", "") != "bitnet" ||
      (linear != "bitlinear" && linear != "autobitlinear") ||
      (mode != "offline" && mode != "online") || hf::Flag(*quantization, "use_rms_norm", false))
    return base::Unimplemented("field 'quantization_config' ", quantization->Dump(),
                               " is not supported");
  ASSIGN_OR_RETURN(const Json::Array kept, hf::List(*quantization, {"modules_to_not_convert"}));
  for (const Json& module : kept) {
    if (!module.is_string() || module.as_string() != "lm_head")
      return base::Unimplemented("field 'modules_to_not_convert' with ", module.Dump(),
                                 " is not supported; supported is lm_head");
  }
  out.divides = linear == "bitlinear";
  const bool online = linear == "autobitlinear" && mode == "online";
  out.form = online ? BitNetWeights::Form::kRounded : BitNetWeights::Form::kPacked;
  return out;
}

Status UnpackBitNet(const BitNetWeights& weights, ModelFile& model) {
  if (weights.form == BitNetWeights::Form::kFloats) return OkStatus();
  std::vector<TensorInfo> out;
  for (const TensorInfo& tensor : model.tensors) {
    if (tensor.name.ends_with(".weight_scale")) continue;  // used with its weights
    out.push_back(tensor);
    if (!IsLayerMatrix(tensor)) continue;
    ASSIGN_OR_RETURN(out.back(), UnpackOne(weights, model, tensor));
  }
  model.tensors = std::move(out);
  return OkStatus();
}

}  // namespace thermocline::model
