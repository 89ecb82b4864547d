#include "engine/gpu/device_head.h"

namespace thermocline::gpu {

DeviceHead::DeviceHead(const DeviceModel& model, int logits_max, DeviceArena& arena)
    : model_(model), dense_(model), logits_max_(logits_max) {
  AddActivations(arena, 2 * logits_max_, model.config().hidden_size, &x_);
  arena.Add(&logits_, Area(2 * logits_max_, model.config().vocab_size));
}

Status DeviceHead::Allocate() {
  ASSIGN_OR_RETURN(result_,
                   device::MappedBuffer::Allocate(model_.device(), "results",
                                                  HostBytes(model_.config(), logits_max_)));
  return OkStatus();
}

// As Transformer::Head: a quantised head also multiplies the rounding errors.
Status DeviceHead::Put(const float* residual, int count) const {
  const model::Linear& output = model_.output();
  RETURN_IF_ERROR(dense_.Norm(model_.output_norm(), residual, count, x_));
  RETURN_IF_ERROR(kernels::Traits(output.weight.type).quantized
                      ? dense_.MultiplyPrecisely(output, x_, count, logits_)
                      : dense_.Multiply(output, x_, count, logits_));
  return model_.stream().CopyToHost(result_.host<float>(), logits_,
                                    Area(count, model_.config().vocab_size) * sizeof(float));
}

std::span<const float> DeviceHead::logits(int count) const {
  return {result_.host<float>(), Area(count, model_.config().vocab_size)};
}

}  // namespace thermocline::gpu
