// Makes bundle files of models for tests, as `thermocline pack` writes them, in the model's own
// order.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "engine/base/worker_pool.h"
#include "engine/model/fingerprint.h"
#include "engine/model/model_file.h"
#include "engine/model/open/open_model.h"
#include "engine/model/weights/weights.h"
#include "engine/offline/bundle_writer.h"

namespace thermocline::exec {

// Packs the neurons of `model` into `out`. Requires: its down projection is neuron-major.
inline void PackNeurons(const std::string& model, const std::string& out) {
  const auto file = model::OpenModelFile(model);
  ASSERT_TRUE(file.ok()) << file.status().message();
  base::WorkerPool pool(1);
  const auto weights = model::LoadWeights(
      **file, pool, {.gate = model::Layout::kRows, .up = model::Layout::kRows, .on_progress = {}});
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  const model::ModelConfig& c = (*file)->config;
  const model::LayerWeights& first = (*weights)->layers[0];
  store::BundleIndex index{.model_hash = *model::Fingerprint(**file),
                           .hidden_size = c.hidden_size,
                           .intermediate_size = c.intermediate_size,
                           .num_hidden_layers = c.num_hidden_layers};
  index.layout = {.gated = c.architecture->gated,
                  .gate_type = first.gate.linear.weight.type,
                  .up_type = first.up.linear.weight.type,
                  .down_type = first.down_rows.type,
                  .neurons_per_group = 4,
                  .group_stride = 4096};
  store::NeuronLayout& layout = index.layout;
  layout.gate_bytes = layout.gated ? kernels::RowBytes(layout.gate_type, c.hidden_size) : 0;
  layout.up_bytes = kernels::RowBytes(layout.up_type, c.hidden_size);
  layout.down_bytes = kernels::RowBytes(layout.down_type, c.hidden_size);
  ASSERT_LE(4 * layout.bundle_bytes(), layout.group_stride);
  index.layers.resize((*weights)->layers.size());
  for (auto& layer : index.layers) {
    layer.position.resize(static_cast<std::size_t>(c.intermediate_size));
    std::iota(layer.position.begin(), layer.position.end(), 0);
  }
  auto writer = offline::BundleWriter::Open(out, index);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (const model::LayerWeights& l : (*weights)->layers)
    ASSERT_TRUE((*writer)->AddNeurons({l.gate.rows(), l.up.rows(), l.down_rows}).ok());
  ASSERT_TRUE((*writer)->Commit().ok());
}

}  // namespace thermocline::exec
