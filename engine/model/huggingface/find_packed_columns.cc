#include "engine/model/code_values.h"
#include "engine/model/huggingface/fields.h"
#include "engine/model/huggingface/packed_columns.h"

namespace thermocline::model {
namespace {

constexpr std::string_view kCodes = ".qweight";

// Sets how words are read. Sources: AutoGPTQ's and AutoAWQ's quantize_config.
Status SetLayout(const Json& quantization, PackedColumns& packed) {
  ASSIGN_OR_RETURN(packed.bits, hf::Int(quantization, {"bits", "w_bit"}, 4));
  packed.awq = hf::String(quantization, {"quant_method"}, "") == "awq";
  if (packed.bits != 4 && (packed.awq || packed.bits != 8))
    return base::Unimplemented(packed.bits, " bits are not read");
  const std::string version = hf::String(quantization, {"version"}, "gemm"),
                    format = hf::String(quantization, {"checkpoint_format"}, "gptq");
  if (packed.awq && version != "gemm" && version != "GEMM")
    return base::Unimplemented("AWQ's layout '", version, "' is not read; 'gemm' is");
  if (!packed.awq && format != "gptq" && format != "gptq_v2")
    return base::Unimplemented("GPTQ's checkpoint_format '", format, "' is not read");
  packed.zero_plus = packed.awq || format == "gptq_v2" ? 0 : 1;
  return OkStatus();
}

Status SetShape(StoredSet& stored, PackedColumns& packed) {
  const std::int64_t per_word = 32 / packed.bits;
  const int scale_bytes = ScaleBytes(packed.scales.type);
  if (packed.codes.type != "I32" || packed.zeros.type != "I32" || scale_bytes < 2)
    return base::Unimplemented("of type ", packed.codes.type, " with scales of type ",
                               packed.scales.type);
  ASSIGN_OR_RETURN(const auto codes, stored.ShapeOf(packed.codes, 4));
  ASSIGN_OR_RETURN(const auto zeros, stored.ShapeOf(packed.zeros, 4));
  ASSIGN_OR_RETURN(const auto scales, stored.ShapeOf(packed.scales, scale_bytes));
  packed.inputs = codes[1] * (packed.awq ? 1 : per_word);
  packed.outputs = codes[2] * (packed.awq ? per_word : 1);
  packed.num_groups = scales[1];
  if (codes[0] != 1 || zeros[0] != 1 || scales[0] != 1 || scales[2] != packed.outputs ||
      zeros[1] != packed.num_groups || zeros[2] * per_word != packed.outputs ||
      packed.inputs % packed.num_groups != 0)
    return base::InvalidArgument("of ", packed.inputs, " inputs and ", packed.outputs,
                                 " outputs has scales [", scales[1], ", ", scales[2],
                                 "] and zero points [", zeros[1], ", ", zeros[2], "]");
  if (!packed.groups.has_value()) return OkStatus();
  ASSIGN_OR_RETURN(const auto groups, stored.ShapeOf(*packed.groups, 4));
  if (packed.groups->type != "I32" || groups[1] != 1 || groups[2] != packed.inputs)
    return base::InvalidArgument("'", packed.groups->name, "' does not give each input's group");
  return OkStatus();
}

}  // namespace

Result<PackedColumns> FindPackedColumns(const StoredTensor& codes, const Json& quantization,
                                        StoredSet& stored) {
  PackedColumns packed;
  packed.codes = codes;
  const std::string module = codes.name.substr(0, codes.name.size() - kCodes.size());
  const StoredTensor *zeros = stored.Use(module + ".qzeros"),
                     *scales = stored.Use(module + ".scales"),
                     *groups = stored.Use(module + ".g_idx");
  if (zeros == nullptr || scales == nullptr)
    return base::InvalidArgument("'", module, zeros == nullptr ? ".qzeros" : ".scales",
                                 "' is missing");
  packed.zeros = *zeros;
  packed.scales = *scales;
  if (groups != nullptr) packed.groups = *groups;
  RETURN_IF_ERROR(SetLayout(quantization, packed));
  RETURN_IF_ERROR(SetShape(stored, packed));
  return packed;
}

}  // namespace thermocline::model
