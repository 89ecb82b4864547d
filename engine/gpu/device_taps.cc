#include "engine/gpu/device_taps.h"

#include "engine/nn/offset.h"

namespace thermocline::gpu {

DeviceTaps::DeviceTaps(const DeviceModel& model, bool used)
    : model_(model), used_(used), layers_(model.placement().home_layers) {}

Status DeviceTaps::Allocate() {
  if (!used_) return OkStatus();
  const std::size_t bytes = Area(2 * layers_, model_.config().hidden_size) * sizeof(float);
  ASSIGN_OR_RETURN(memory_,
                   device::MappedBuffer::Allocate(model_.device(), "inputs to audit", bytes));
  return OkStatus();
}

float* DeviceTaps::of(int layer) const {
  return memory_.host<float>() + nn::Offset(2 * layer, model_.config().hidden_size);
}

// Without neuron-major rows a layer is computed densely, whatever its mode.
ffn::FfnPolicy DeviceTaps::PolicyOf(int layer, const ffn::SparseFfn& cold) const {
  return model_.layer(layer).has_rows() ? cold.policy(layer) : ffn::FfnPolicy{};
}

void DeviceTaps::Open(ffn::Auditor* auditor, const ffn::SparseFfn& cold) {
  auditor_ = auditor;
  open_ = false;
  for (int l = 0; auditor != nullptr && l < layers_; ++l)
    open_ |= auditor->Audits(PolicyOf(l, cold));
  CHECK(used_ || !open_);
}

Status DeviceTaps::Put(int layer, const float* hidden, const float* residual) const {
  if (!open_) return OkStatus();
  const std::size_t d = model_.config().hidden_size, bytes = d * sizeof(float);
  RETURN_IF_ERROR(model_.stream().CopyToHost(of(layer), hidden, bytes));
  return model_.stream().CopyToHost(of(layer) + d, residual, bytes);
}

void DeviceTaps::Keep(const ffn::SparseFfn& cold) const {
  if (auditor_ == nullptr || !used_) return;
  const int d = model_.config().hidden_size;
  for (int l = 0; l < layers_; ++l)
    auditor_->KeepInput(l, {.hidden = of(l), .residual = of(l) + d}, PolicyOf(l, cold));
}

}  // namespace thermocline::gpu
