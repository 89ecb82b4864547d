#include "engine/model/huggingface/packed_weights.h"

#include <algorithm>
#include <set>

#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/model/huggingface/decoded_file.h"
#include "engine/model/huggingface/fields.h"
#include "engine/model/huggingface/packed_columns.h"
#include "engine/model/huggingface/packed_rows.h"

namespace thermocline::model {
namespace {

using kernels::DType;

constexpr std::string_view kPacked = "_packed", kWeight = ".weight", kCodes = ".qweight";

std::string MethodOf(const Json& config) {
  const Json* quantization = config.Find("quantization_config");
  if (quantization == nullptr || !quantization->is_object()) return "";
  return hf::String(*quantization, {"quant_method"}, "unknown");
}

bool IsDecoded(const std::string& method) {
  static const std::set<std::string> kMethods = {"fp8",  "compressed-tensors", "modelopt",
                                                 "gptq", "fbgemm_fp8",         "awq"};
  return kMethods.contains(method);
}

std::string Without(const std::string& name, std::string_view end) {
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : name;
}

// Decodes the weights of one folder.
class Decoder {
 public:
  Decoder(const Json& quantization, const std::vector<StoredTensor>& tensors, ModelFile& model)
      : quantization_(quantization),
        model_(model),
        stored_(tensors, model),
        columns_(ReaderOfColumns(model)),
        file_(std::make_unique<DecodedFile>(model.path + " (decoded)")) {}

  Result<std::vector<StoredTensor>> Run(const std::vector<StoredTensor>& tensors) {
    std::vector<StoredTensor> out;
    for (const StoredTensor& tensor : tensors) {
      auto read = One(tensor);
      if (!read.ok()) return read.status().Annotate(StrCat("tensor '", tensor.name, "'"));
      out.push_back(*std::move(read));
    }
    std::erase_if(out, [&](const StoredTensor& each) { return stored_.IsUsed(each.name); });
    if (file_->size() == 0) return out;
    base::LogWarning(model_.path, ": its packed weights are held in 16 bits; `thermocline convert ",
                     "--quantize` makes a file that needs less memory");
    model_.decoded_file = base::IntSize(model_.files);
    model_.files.push_back(std::move(file_));
    return out;
  }

 private:
  Result<StoredTensor> One(const StoredTensor& tensor) {
    if (tensor.name.ends_with(kCodes)) return Columns(tensor);
    const std::string stem = Without(tensor.name, kPacked);
    const bool scaled = stored_.Has(stem + "_scale") || stored_.Has(stem + "_scale_inv"),
               small = tensor.type == "F8_E4M3" || tensor.type == "U8" || tensor.type == "I8";
    return stem != tensor.name || (scaled && small) ? Rows(tensor, stem) : tensor;
  }

  Result<StoredTensor> Rows(const StoredTensor& tensor, const std::string& stem) {
    if (tensor.dims.size() < 2)
      return base::InvalidArgument("'", tensor.name, "' has ", tensor.dims.size(),
                                   " dimensions; packed weights have rows and columns");
    ASSIGN_OR_RETURN(PackedRows packed, FindPackedRows(tensor, stem, quantization_, stored_));
    // Scales of activations are dropped: activations stay floats here.
    for (const char* helper : {".input_scale", ".activation_scale", ".input_global_scale",
                               ".output_scale", ".k_scale", ".v_scale"})
      stored_.Use(Without(stem, kWeight) + helper);
    StoredTensor out = tensor;
    out.name = stem;
    out.dims.back() = packed.cols;
    DecodedMatrix matrix{.rows = packed.rows, .cols = packed.cols, .source = {}};
    matrix.source = RowsOf(model_, std::move(packed));
    return Decoded(std::move(out), std::move(matrix));
  }

  Result<StoredTensor> Columns(const StoredTensor& tensor) {
    ASSIGN_OR_RETURN(PackedColumns packed, FindPackedColumns(tensor, quantization_, stored_));
    StoredTensor out = tensor;
    out.name = Without(tensor.name, kCodes) + std::string(kWeight);
    out.dims = {packed.outputs, packed.inputs};
    DecodedMatrix matrix{.rows = packed.outputs, .cols = packed.inputs, .source = {}};
    if (packed.scales.type == "F16") matrix.type = DType::kF16;
    matrix.source = columns_(std::move(packed));
    return Decoded(std::move(out), std::move(matrix));
  }

  // Places a tensor in the decoded file.
  StoredTensor Decoded(StoredTensor tensor, DecodedMatrix matrix) {
    tensor.type = matrix.type == DType::kF16 ? "F16" : "BF16";
    tensor.file = base::IntSize(model_.files);
    tensor.data_begin = 0;
    tensor.begin = static_cast<std::int64_t>(file_->Add(std::move(matrix)));
    tensor.end = static_cast<std::int64_t>(file_->size());
    return tensor;
  }

  const Json& quantization_;
  ModelFile& model_;
  StoredSet stored_;
  const ColumnsReader columns_;
  std::unique_ptr<DecodedFile> file_;
};

}  // namespace

Status CheckQuantization(const Json& config) {
  const std::string method = MethodOf(config);
  if (method.empty() || method == "bitnet" || method == "mxfp4" || IsDecoded(method))
    return OkStatus();
  return base::Unimplemented(
      "weights quantised by '", method,
      "' (field 'quantization_config') are not read: take a GGUF file of the model, or the folder "
      "in bf16 or f16 and `thermocline convert --quantize q4_k`");
}

Status DecodeWeights(const Json& config, std::vector<StoredTensor>& tensors, ModelFile& model) {
  if (!IsDecoded(MethodOf(config))) return OkStatus();
  Decoder decoder(*config.Find("quantization_config"), tensors, model);
  ASSIGN_OR_RETURN(auto decoded, decoder.Run(tensors));
  tensors = std::move(decoded);
  return OkStatus();
}

}  // namespace thermocline::model
