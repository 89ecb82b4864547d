#include "tools/pack/pack_experts.h"

#include <algorithm>

#include "engine/store/bundle_layout.h"

namespace thermocline::tools {

Result<store::NeuronLayout> ExpertLayoutOf(const model::ModelFile& file,
                                           const model::Weights& weights) {
  const model::ModelConfig& config = file.config;
  store::NeuronLayout layout{.expert_neurons = config.experts.intermediate_size,
                             .gated = config.architecture->gated};
  bool first = true;
  for (std::size_t i = 0; i < weights.layers.size(); ++i) {
    const model::ExpertWeights& e = weights.layers[i].experts;
    if (!e.any()) continue;
    if (e.down_rows.rows > 0)
      return base::FailedPrecondition(
          file.path,
          ": the experts' down projections lie along rows, and a bundle has whole "
          "experts along columns; `thermocline convert --down columns` makes such a file");
    if (first) {
      layout.gate_type = e.gate.weight.type;
      layout.up_type = e.up.weight.type;
      layout.down_type = e.down.weight.type;
      first = false;
    }
    if (e.gate.weight.type == layout.gate_type && e.up.weight.type == layout.up_type &&
        e.down.weight.type == layout.down_type)
      continue;
    return base::Unimplemented(
        file.path, ": the experts of layer ", i,
        " have other types than those before, and a bundle file has one layout; make them one "
        "type: thermocline convert ",
        file.path, " OUT.gguf --quantize q4_0");
  }
  layout.SetRowBytes(config.hidden_size);
  layout.group_stride = store::BlockAligned(layout.bundle_bytes());
  return layout;
}

Status AddExperts(const model::ModelFile& file, base::WorkerPool& pool, int layer,
                  offline::BundleWriter& writer) {
  ASSIGN_OR_RETURN(const auto weights, model::LoadWeights(file, pool,
                                                          {.parts =
                                                               [=](int each) {
                                                                 model::LayerParts parts =
                                                                     model::kNoParts;
                                                                 parts.rest = each == layer;
                                                                 return parts;
                                                               },
                                                           .shared = {false, false},
                                                           .log_conversions = false,
                                                           .on_progress = {}}));
  const store::NeuronLayout& layout = writer.index().layout;
  const int experts = writer.index().intermediate_size;
  const auto elements = static_cast<int>(layout.row_elements(writer.index().hidden_size));
  const model::ExpertWeights& from = weights->layers[layer].experts;
  const std::vector<std::uint8_t> zeros(
      from.any() ? 0 : experts * std::max({layout.gate_bytes, layout.up_bytes, layout.down_bytes}));
  const auto rows = [&](const model::Linear& all, kernels::DType type) {
    return kernels::RowMatrix{type, experts, elements, from.any() ? all.weight.data : zeros.data()};
  };
  return writer.AddNeurons({.gate = rows(from.gate, layout.gate_type),
                            .up = rows(from.up, layout.up_type),
                            .down = rows(from.down, layout.down_type)});
}

}  // namespace thermocline::tools
