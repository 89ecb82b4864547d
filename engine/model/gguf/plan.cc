#include "engine/model/gguf/plan.h"

#include <algorithm>
#include <map>

#include "engine/base/log.h"
#include "engine/base/strings.h"
#include "engine/model/expert_rows.h"
#include "engine/model/weights/input_major.h"
#include "kernels/rows.h"

namespace thermocline::model {
namespace {

using kernels::DType;

constexpr std::string_view kColumns = ".ffn_down.weight";
constexpr std::string_view kRows = ".ffn_down_t.weight";

// Returns the layer of a tensor; -1 if it belongs to none.
int LayerOf(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  return base::ParseNumber<int>(name.substr(0, name.find('.'))).value_or(-1);
}

// Returns `type` or, if its blocks do not divide the rows, Q8_0 or F16.
DType FittingType(DType type, std::int64_t cols) {
  if (!kernels::Traits(type).quantized) return type;
  for (const DType choice : {type, DType::kQ8_0}) {
    if (cols % kernels::Traits(choice).block_size == 0) return choice;
  }
  return DType::kF16;
}

// Embeddings and head are stored more precisely than the rest: Q8_0 with the 4- and 5-bit block
// types, Q6_K with K types.
DType EdgeType(DType type) {
  if (!kernels::Traits(type).quantized || type == DType::kQ8_0) return type;
  return kernels::Traits(type).block_size == 256 ? DType::kQ6_K : DType::kQ8_0;
}

// True for the matrices with the most influence: embeddings, head, and the matrices at the streams'
// beginning and end.
bool IsEdge(std::string_view name) {
  for (const std::string_view edge :
       {"token_embd.weight", "output.weight", "altup_proj.weight", "altup_unembd_proj.weight",
        "per_layer_token_embd.weight", "per_layer_model_proj.weight"})
    if (name == edge) return true;
  return name.find(".laurel_") != std::string_view::npos;
}

// Returns the type that `planned` will have, given its layout.
DType TargetType(const PlannedTensor& planned, const std::optional<DType>& wanted) {
  if (planned.tensor->num_dims < 2 || StaysFloat(planned.name)) return DType::kF32;
  DType type = wanted.value_or(*planned.tensor->type->dtype);
  if (IsEdge(planned.name) && wanted.has_value()) type = EdgeType(type);
  if (planned.name.ends_with(kRows) || planned.name.ends_with(kExpertDownRows))
    type = kernels::SummableType(type, planned.cols());
  return FittingType(type, planned.cols());
}

// Returns the layout that kAuto means for column-major tensors: the same for all layers, because a
// file with mixed layouts would be hard to reason about.
DownLayout ChooseLayout(const ModelFile& model, const GgufWriteOptions& options) {
  if (options.down != DownLayout::kAuto) return options.down;
  if (!model.config.HasZeros()) return DownLayout::kColumns;
  std::map<std::string, int> kept;  // tensors whose blocks would be copied, by type
  for (const TensorInfo& tensor : model.tensors) {
    if (!tensor.name.ends_with(kColumns)) continue;
    const DType stored = *tensor.type->dtype;
    const PlannedTensor planned{.tensor = &tensor, .name = tensor.name};
    const DType target = TargetType(planned, options.type);
    // Reading whole ternary columns is faster than reading half of them as rows.
    if (target == DType::kTQ2_0) return DownLayout::kColumns;
    if (kernels::Traits(stored).quantized && target == stored) ++kept[tensor.type->name];
  }
  if (kept.empty()) return DownLayout::kRows;
  for (const auto& [type, count] : kept) {
    base::LogWarning(count, " tensors ffn_down of type ", type,
                     " stay as they are, neurons along the columns; with --down rows a neuron that "
                     "is zero for a token would not be read, but their weights would be rounded "
                     "once more: better convert from the unquantised model");
  }
  return DownLayout::kColumns;
}

// Rejects tensors without the shape of a down projection: sizes checked with the configuration
// bound the memory of the transposition.
Status PlanTurn(const ModelConfig& config, DownLayout layout, PlannedTensor& planned) {
  const std::string& name = planned.tensor->name;
  const bool to_rows = layout == DownLayout::kRows && name.ends_with(kColumns);
  const bool to_columns = layout == DownLayout::kColumns && name.ends_with(kRows);
  planned.transposed = to_rows || to_columns;
  if (!planned.transposed) return OkStatus();
  const std::int64_t d = config.hidden_size, f = config.intermediate_size;
  const TensorInfo& tensor = *planned.tensor;
  if (tensor.num_dims != 2 || tensor.rows != (to_rows ? d : f) || tensor.cols != (to_rows ? f : d))
    return base::InvalidArgument("tensor '", name, "' has the shape [", tensor.rows, ", ",
                                 tensor.cols, "], expected [", to_rows ? d : f, ", ",
                                 to_rows ? f : d, "]");
  if (to_rows) planned.name.replace(name.size() - kColumns.size(), kColumns.size(), kRows);
  if (to_columns) planned.name.replace(name.size() - kRows.size(), kRows.size(), kColumns);
  return OkStatus();
}

// Adds an input-major copy of every matrix of mode inputs.
Status AddInputMajor(std::vector<PlannedTensor>& plan) {
  const std::size_t count = plan.size();
  for (std::size_t i = 0; i < count; ++i) {
    const PlannedTensor& own = plan[i];
    if (own.name.ends_with(kRows))
      return base::InvalidArgument("--layout inputs: '", own.name,
                                   "' is neuron-major, and mode 'inputs' reads a down projection "
                                   "along columns: give --down columns");
    std::string name = InputMajorName(own.name);
    if (name.empty() || own.rows() % kernels::kActivationBlock != 0) continue;
    plan.push_back({.tensor = own.tensor,
                    .name = std::move(name),
                    .type = InputMajorType(own.type, static_cast<int>(own.cols())),
                    .transposed = !own.transposed});
  }
  return OkStatus();
}

}  // namespace

bool StaysFloat(std::string_view name) {
  for (const std::string_view part :
       {".ffn_gate_inp", ".altup_router", "_coef.weight", ".ssm_conv1d", ".shortconv.conv",
        ".ssm_a", ".ssm_d", ".ssm_norm"})
    if (name.find(part) != std::string_view::npos) return true;
  return name.ends_with(".bias");
}

Result<std::vector<PlannedTensor>> PlanGguf(const ModelFile& model,
                                            const GgufWriteOptions& options) {
  for (const TensorInfo& tensor : model.tensors) {
    if (!tensor.type->dtype.has_value())
      return base::Unimplemented("tensor '", tensor.name, "' has type ", tensor.type->name,
                                 ", which cannot be read");
  }
  const DownLayout layout = ChooseLayout(model, options);
  // Under kAuto a neuron-major tensor stays so, because it was chosen explicitly.
  const bool keeps_rows = options.down == DownLayout::kAuto && layout == DownLayout::kColumns;
  std::vector<PlannedTensor> plan;
  std::map<std::pair<std::string, std::string>, int> changed;
  std::map<std::pair<std::string, std::int64_t>, int> too_narrow;  // by the type they get
  for (const TensorInfo& tensor : model.tensors) {
    if (tensor.name.ends_with(kInputMajorSuffix)) continue;  // regenerated, or left out
    PlannedTensor& planned =
        plan.emplace_back(PlannedTensor{.tensor = &tensor, .name = tensor.name});
    // Rows pay only if neurons are zero.
    const int layer = LayerOf(tensor.name);
    const bool whole = options.down == DownLayout::kAuto && layer >= 0 &&
                       layer < model.config.num_hidden_layers && !model.config.HasZeros(layer);
    RETURN_IF_ERROR(
        PlanTurn(model.config, keeps_rows || whole ? DownLayout::kAuto : layout, planned));
    planned.type = TargetType(planned, options.type);
    const DType asked = options.type.value_or(*tensor.type->dtype);
    if (planned.name.ends_with(kRows) && planned.type != asked)
      ++changed[{kernels::Traits(asked).name, kernels::Traits(planned.type).name}];
    else if (planned.cols() % kernels::Traits(asked).block_size != 0 && planned.type != asked &&
             planned.tensor->num_dims >= 2 && !StaysFloat(planned.name))
      ++too_narrow[{kernels::Traits(planned.type).name, planned.cols()}];
  }
  if (options.input_major) RETURN_IF_ERROR(AddInputMajor(plan));
  for (const auto& [types, count] : changed) {
    base::LogWarning(count, " tensors ffn_down_t become ", types.second, ": rows of ", types.first,
                     " have no kernel; --down columns keeps ", types.first);
  }
  for (const auto& [kind, count] : too_narrow) {
    base::LogWarning(count, " matrices become ", kind.first, ": a row has ", kind.second,
                     " numbers, no multiple of a block of ", kernels::Traits(*options.type).name,
                     "; q4_0, q5_0 and q8_0 have blocks of 32");
  }
  return plan;
}

}  // namespace thermocline::model
