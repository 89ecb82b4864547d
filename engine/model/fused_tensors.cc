#include "engine/model/fused_tensors.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/base/strings.h"

namespace thermocline::model {
namespace {

constexpr std::string_view kGateUp = ".ffn_gate_up";

}  // namespace

bool IsGateUp(const TensorInfo& tensor) { return tensor.name.find(kGateUp) != std::string::npos; }

Result<std::vector<TensorInfo>> SplitGateUp(const TensorInfo& tensor) {
  const bool vectors = tensor.name.ends_with(".bias");
  const std::int64_t rows = vectors ? tensor.cols : tensor.rows / tensor.slabs;
  if (rows % 2 != 0 || rows > INT32_MAX || (vectors && tensor.type->block_size != 1))
    return base::InvalidArgument("tensor '", tensor.name, "' has ", rows, " rows of ",
                                 tensor.type->name, " for each matrix; gate and up are half each");
  std::vector<TensorInfo> parts;
  const std::size_t at = tensor.name.find(kGateUp);
  for (const int part : {0, 1}) {
    TensorInfo& out = parts.emplace_back(tensor);
    out.name.replace(at, kGateUp.size(), part == 0 ? ".ffn_gate" : ".ffn_up");
    (vectors ? out.cols : out.rows) /= 2;
    out.bytes /= 2;
    out.order = {static_cast<int>(rows / 2), false, 1, 2, part};
  }
  return parts;
}

Result<std::vector<TensorInfo>> SplitQkv(const TensorInfo& tensor, const ModelConfig& c) {
  const std::string_view rest = std::string_view(tensor.name).substr(tensor.name.find('.') + 1);
  const int layer = base::ParseNumber<int>(rest.substr(0, rest.find('.'))).value_or(0);
  const HeadShape shape = c.HeadsOf(layer);
  const std::int64_t q = shape.q(), kv = shape.kv();
  const bool vector = tensor.num_dims == 1;
  const std::int64_t all = vector ? tensor.cols : tensor.rows;
  if (all != q + 2 * kv || (vector && tensor.type->block_size != 1))
    return base::InvalidArgument("tensor '", tensor.name, "' has ", all, " rows of ",
                                 tensor.type->name, ", expected ", q + 2 * kv);
  const std::string prefix = tensor.name.substr(0, tensor.name.find(".attn_qkv") + 6);
  const std::string suffix = tensor.name.substr(tensor.name.rfind('.'));
  const bool by_head = c.architecture->name == "persimmon";
  std::vector<TensorInfo> parts;
  std::uint64_t offset = tensor.offset;
  for (const auto& [name, rows] : {std::pair{"q", q}, {"k", kv}, {"v", kv}}) {
    TensorInfo& part = parts.emplace_back(tensor);
    part.name = StrCat(prefix, name, suffix);
    (vector ? part.cols : part.rows) = rows;
    part.bytes = tensor.bytes / all * rows;
    part.offset = offset;
    if (by_head) part.order = {shape.dim, false, 1, 3, base::IntSize(parts) - 1};
    offset += by_head ? 0 : part.bytes;
  }
  return parts;
}

bool IsFusedRows(const TensorInfo& tensor) {
  return tensor.name.find(".attn_qkv_rows.") != std::string::npos;
}

Status AddPiece(const TensorInfo& part, int expert, ModelFile& model) {
  // With AltUp a part belongs to a stream.
  const bool streams = model.config.altup.any();
  const int experts = streams ? model.config.altup.streams - 1 : model.config.experts.num_experts;
  if (expert < 0 || expert >= experts)
    return base::DataLoss("tensor '", part.name, "' has a part ", expert,
                          ", but the configuration says ", experts,
                          streams ? " streams besides the first" : " experts");
  auto found = std::find_if(model.tensors.begin(), model.tensors.end(),
                            [&](const TensorInfo& t) { return t.name == part.name; });
  if (found == model.tensors.end()) {
    TensorInfo all = part;
    all.num_dims = part.num_dims + 1;
    all.slabs = part.num_dims > 1 ? experts : 1;
    all.rows *= experts;
    all.bytes *= experts;
    all.pieces.resize(experts);
    model.tensors.push_back(std::move(all));
    found = model.tensors.end() - 1;
  }
  if (found->pieces.empty() || found->pieces[expert].file >= 0)
    return base::DataLoss("tensor '", part.name, "' of expert ", expert, " appears twice");
  if (found->type != part.type || found->cols != part.cols || found->rows != part.rows * experts)
    return base::DataLoss("tensor '", part.name, "' of expert ", expert, " is ", part.type->name,
                          " [", part.rows, ", ", part.cols, "], others' is ", found->type->name,
                          " [", found->rows / experts, ", ", found->cols, "]");
  found->pieces[expert] = {part.file, part.offset};
  return OkStatus();
}

Status CheckPieces(const ModelFile& model) {
  for (const TensorInfo& tensor : model.tensors) {
    for (std::size_t i = 0; i < tensor.pieces.size(); ++i) {
      if (tensor.pieces[i].file < 0)
        return base::InvalidArgument("tensor '", tensor.name, "': expert ", i, " is missing");
    }
  }
  return OkStatus();
}

}  // namespace thermocline::model
