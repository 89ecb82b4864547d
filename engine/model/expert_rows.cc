#include "engine/model/expert_rows.h"

#include <algorithm>

#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/model/derived_tensor.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

constexpr std::string_view kExpertDownColumns = "ffn_down_exps.weight";

// Rows of floats as q8_0, or f16 where its blocks do not fit.
TensorInfo Rounded(const TensorInfo& floats) {
  const bool fits = floats.cols % kernels::Traits(kernels::DType::kQ8_0).block_size == 0;
  const kernels::DType type = fits ? kernels::DType::kQ8_0 : kernels::DType::kF16;
  TensorInfo out = floats;
  out.type = &FileTypeOf(type);
  const int cols = out.columns();
  out.bytes = out.rows * kernels::RowBytes(type, cols);
  out.source = std::make_shared<const RowSource>(
      [source = floats.source, type, cols](std::int64_t row, std::span<std::byte> to) -> Status {
        std::vector<float> values(cols);
        RETURN_IF_ERROR((*source)(row, std::as_writable_bytes(std::span(values))));
        kernels::QuantizeRow(type, values.data(), cols, base::Octets(to.data()));
        return OkStatus();
      });
  return out;
}

}  // namespace

bool HasExpertRows(const ModelFile& model) {
  return std::any_of(model.tensors.begin(), model.tensors.end(),
                     [](const TensorInfo& t) { return t.name.ends_with(kExpertDownRows); });
}

Status TurnExpertsDown(ModelFile& model, bool to_rows) {
  const std::string_view from = to_rows ? kExpertDownColumns : kExpertDownRows,
                         to = to_rows ? kExpertDownRows : kExpertDownColumns;
  const std::int64_t experts = model.config.experts.num_experts;
  int rounded = 0;
  for (TensorInfo& tensor : model.tensors) {
    if (!tensor.name.ends_with(from)) continue;
    if (tensor.slabs != experts || tensor.rows % experts != 0)
      return base::InvalidArgument("tensor '", tensor.name, "' has ", tensor.slabs,
                                   " matrices, expected ", experts);
    const bool quantised = tensor.type->block_size > 1;
    rounded += quantised ? 1 : 0;
    const std::string prefix = tensor.name.substr(0, tensor.name.size() - from.size());
    tensor = TurnedTensor(model, {.name = StrCat(prefix, to),
                                  .stored = tensor,
                                  .matrices = experts,
                                  .first_row = 0,
                                  .cols = tensor.rows / experts,
                                  .order = {},
                                  .rows = tensor.cols});
    if (quantised) tensor = Rounded(tensor);
  }
  if (rounded > 0)
    base::LogWarning(rounded,
                     " tensors of quantised weights are turned, q8_0 from now on and rounded "
                     "once more: better convert from the unquantised model with --down ",
                     to_rows ? "rows" : "columns");
  return OkStatus();
}

}  // namespace thermocline::model
