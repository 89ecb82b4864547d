#include "engine/load/device_upload.h"

#include "engine/base/ratio.h"
#include "engine/model/weights/down_layout.h"

namespace thermocline::load {
namespace {

// The parts of a layer that the device holds.
model::LayerParts PartsOf(const gpu::DeviceLayer& layer) {
  const bool network = layer.neurons > 0;
  return {.attention = layer.home, .deciding = network, .rest = network, .predictor = false};
}

// Reads one layer from the model's file, in the host's layout.
Result<std::unique_ptr<model::Weights>> ReadLayer(const LoadedModel& model, int layer,
                                                  model::LayerParts parts) {
  const bool rows = model.weights->has_down_rows();
  const auto layout = rows ? model::Layout::kRows : model::Layout::kPanels;
  ASSIGN_OR_RETURN(
      auto weights,
      model::LoadWeights(*model.file, *model.pool,
                         {.verify = model.verify,
                          .gate = layout,
                          .up = layout,
                          .parts = [&](int l) { return l == layer ? parts : model::kNoParts; },
                          .shared = {false, false},
                          .log_conversions = false}));
  model::LayerWeights& read = weights->layers[layer];
  if (rows && parts.rest && read.down_rows.rows == 0) model::TurnDown(read, *model.pool);
  return weights;
}

// Reads the head alone.
Result<std::unique_ptr<model::Weights>> ReadHead(const LoadedModel& model) {
  return model::LoadWeights(*model.file, *model.pool,
                            {.verify = model.verify,
                             .quantize_head = model.quantize_head,
                             .parts = [](int) { return model::kNoParts; },
                             .shared = {.embeddings = false, .head = true},
                             .log_conversions = false});
}

Status UploadHead(const LoadedModel& model, gpu::DeviceModel& on) {
  if (!on.placement().head) return OkStatus();
  const model::Weights& held = *model.weights;
  if (held.output.weight.data != nullptr) return on.UploadHead(held.output_norm, held.output);
  ASSIGN_OR_RETURN(const auto read, ReadHead(model));
  return on.UploadHead(read->output_norm, read->output);
}

bool HasAllOf(const model::LayerWeights& held, const gpu::DeviceLayer& device) {
  const bool attention = !device.home || held.q.weight.data != nullptr;
  const bool panels = device.has_rows() || !device.home || held.up.linear.weight.data != nullptr;
  return attention && panels && (device.neurons == 0 || !device.has_rows() || HasRows(held));
}

// Audits of a layer that a device computes completely run on the host, so its rows stay.
void GiveBackLayer(LoadedModel& model, int layer, const gpu::DeviceLayer& device) {
  if (!device.home) return;
  model::Weights& weights = *model.weights;
  model::LayerWeights& w = weights.layers[layer];
  for (model::Linear* matrix : {&w.q, &w.k, &w.v, &w.attn_output}) weights.GiveBack(matrix->weight);
  if (device.has_rows() || model.audits()) return;
  for (model::Linear* matrix : {&w.gate.linear, &w.up.linear, &w.down})
    weights.GiveBack(matrix->weight);
}

}  // namespace

bool HasRows(const model::LayerWeights& layer) {
  return layer.up.linear.weight.data != nullptr || layer.up.where != nullptr;
}

Status UploadWeights(LoadedModel& model, gpu::DeviceModel& on,
                     const std::function<void(double)>& on_progress) {
  const int layers = model.config.num_hidden_layers;
  for (int l = 0; l < layers; ++l) {
    const gpu::DeviceLayer& device = on.layer(l);
    const model::LayerWeights& held = model.weights->layers[l];
    if (HasAllOf(held, device)) {
      RETURN_IF_ERROR(on.UploadDense(l, held));
    } else {
      model::LayerParts parts = PartsOf(device);
      // Rows that the host has, in memory or on flash, are taken from there.
      if (device.has_rows() && HasRows(held)) parts.deciding = parts.rest = false;
      ASSIGN_OR_RETURN(const auto read, ReadLayer(model, l, parts));
      RETURN_IF_ERROR(on.UploadDense(l, read->layers[l]));
      if (!HasRows(held)) RETURN_IF_ERROR(on.UploadNeurons(l, read->layers[l]));
    }
    GiveBackLayer(model, l, device);
    if (on_progress) on_progress(base::Ratio(l + 1, layers));
  }
  RETURN_IF_ERROR(UploadHead(model, on));
  if (on.placement().head && !model.config.tie_word_embeddings)
    model.weights->GiveBack(model.weights->output.weight);
  return OkStatus();
}

Status UploadAgain(const LoadedModel& model) {
  gpu::DeviceModel& on = *model.device;
  const auto upload = [&]() -> Status {
    for (int l = 0; l < model.config.num_hidden_layers; ++l) {
      const gpu::DeviceLayer& device = on.layer(l);
      if (!device.home && device.neurons == 0) continue;
      ASSIGN_OR_RETURN(const auto read, ReadLayer(model, l, PartsOf(device)));
      RETURN_IF_ERROR(on.UploadDense(l, read->layers[l]));
      RETURN_IF_ERROR(on.UploadNeurons(l, read->layers[l]));
    }
    return UploadHead(model, on);
  };
  Status status = upload();
  on.Uploaded();
  if (status.ok()) return status;
  return status.Annotate("the weights that only the GPU held cannot be read again");
}

}  // namespace thermocline::load
