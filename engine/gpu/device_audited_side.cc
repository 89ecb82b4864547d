#include "engine/gpu/device_audited_side.h"

#include <algorithm>

#include "engine/base/index.h"

namespace thermocline::gpu {

DeviceAuditedSide::DeviceAuditedSide(const Params& p)
    : model_(p.model),
      config_(p.model.config()),
      ffn_(p.ffn),
      health_(p.health),
      activity_graphs_(p.model.layers().size()) {
  AddActivations(work_, 1, config_.hidden_size, &input_.hidden);
  work_.Add(&input_.residual, Area(1, config_.hidden_size));
  input_.tokens = 1;
  active_.reserve(Area(1, config_.intermediate_size));
  active_h_.reserve(active_.capacity());
}

std::size_t DeviceAuditedSide::HostBytes(const model::ModelConfig& c) {
  const std::size_t floats = Area(2, c.hidden_size) + Area(1, c.intermediate_size),
                    numbers = 2 * (Area(1, c.intermediate_size) +
                                   Area(1, kernels::NumSumRuns(c.intermediate_size)) + 1);
  return floats * sizeof(float) + numbers * sizeof(std::int32_t);
}

Status DeviceAuditedSide::Allocate() {
  started_.reset();
  RETURN_IF_ERROR(work_.Allocate(model_.device()));
  ASSIGN_OR_RETURN(memory_,
                   device::MappedBuffer::Allocate(model_.device(), "audits", HostBytes(config_)));
  const std::ptrdiff_t d = config_.hidden_size, f = config_.intermediate_size;
  x_ = memory_.host<float>();
  residual_ = x_ + d;
  h_ = residual_ + d;
  predicted_ = reinterpret_cast<std::int32_t*>(h_ + f);
  live_ = predicted_ + f;
  starts_ = live_ + f;
  return OkStatus();
}

void DeviceAuditedSide::DropGraphs() {
  for (auto& look : activity_graphs_) look.Drop();
}

Status DeviceAuditedSide::Start(int layer, const ffn::FfnInput& input,
                                const ffn::FfnPolicy& policy) {
  const Question question{layer, policy.mode, policy.shift};
  if (IsStarted(question, input)) return OkStatus();
  RETURN_IF_ERROR(Prepare(layer, input, policy));
  RETURN_IF_ERROR(activity_graphs_[layer].Launch(model_.stream(), policy.mode,
                                                 [&] { return PutActivity(layer, policy.mode); }));
  started_ = question;
  return OkStatus();
}

Result<ffn::AuditedSide::Activity> DeviceAuditedSide::ExactActivity(int layer,
                                                                    const ffn::FfnInput& input,
                                                                    const ffn::FfnPolicy& policy) {
  RETURN_IF_ERROR(Start(layer, input, policy));
  started_.reset();
  RETURN_IF_ERROR(model_.stream().Synchronize());
  return Activity{predicted(), TakeActive()};
}

Result<std::span<const int>> DeviceAuditedSide::PredictedBy(int layer, const ffn::FfnInput& input,
                                                            const ffn::FfnPolicy& policy) {
  RETURN_IF_ERROR(Prepare(layer, input, policy));
  RETURN_IF_ERROR(PutInput(policy.mode));
  RETURN_IF_ERROR(PutPrediction(layer, policy.mode));
  RETURN_IF_ERROR(model_.stream().Synchronize());
  return predicted();
}

bool DeviceAuditedSide::IsStarted(const Question& question, const ffn::FfnInput& input) const {
  const std::size_t d = config_.hidden_size;
  return !health_.failed() && started_ == question &&
         std::equal(x_, x_ + d, input.hidden.x.data()) &&
         std::equal(residual_, residual_ + d, input.residual);
}

Status DeviceAuditedSide::Prepare(int layer, const ffn::FfnInput& input,
                                  const ffn::FfnPolicy& policy) {
  started_.reset();
  if (health_.failed()) return base::Unavailable("audit: the device has failed");
  std::copy_n(input.hidden.x.data(), Area(1, config_.hidden_size), x_);
  std::copy_n(input.residual, Area(1, config_.hidden_size), residual_);
  return ffn_.SetShift(layer, policy);
}

Status DeviceAuditedSide::PutActivity(int layer, FfnMode mode) {
  device::DeviceStream& stream = model_.stream();
  const std::size_t neurons = config_.intermediate_size;
  const DeviceFfn::Lists found = ffn_.lists(layer);
  RETURN_IF_ERROR(PutInput(mode));
  RETURN_IF_ERROR(ffn_.Find(layer, FfnMode::kExact, input_));
  RETURN_IF_ERROR(stream.CopyToHost(live_, found.live, neurons * sizeof(*live_)));
  RETURN_IF_ERROR(stream.CopyToHost(h_, found.h, neurons * sizeof(float)));
  return PutPrediction(layer, mode);
}

Status DeviceAuditedSide::PutInput(FfnMode mode) {
  device::DeviceStream& stream = model_.stream();
  const std::size_t bytes = Area(1, config_.hidden_size) * sizeof(float);
  RETURN_IF_ERROR(stream.CopyToDevice(input_.hidden.x, x_, bytes));
  if (mode == FfnMode::kLowRank)  // its predictor may read it
    RETURN_IF_ERROR(stream.CopyToDevice(input_.residual, residual_, bytes));
  if (input_.hidden.q == nullptr) return OkStatus();
  return model_.device().Check(
      model_.ops().dense.quantize({.x = input_.hidden, .tokens = 1}, stream.handle()),
      "rounding the input of an audit");
}

Status DeviceAuditedSide::PutPrediction(int layer, FfnMode mode) {
  device::DeviceStream& stream = model_.stream();
  const std::size_t neurons = config_.intermediate_size, starts = 2 * (ffn_.runs() + 1);
  const DeviceFfn::Lists found = ffn_.lists(layer);
  RETURN_IF_ERROR(ffn_.Predict(layer, mode, input_));
  RETURN_IF_ERROR(stream.CopyToHost(predicted_, found.predicted, neurons * sizeof(*predicted_)));
  return stream.CopyToHost(starts_, found.starts, starts * sizeof(*starts_));
}

std::span<const int> DeviceAuditedSide::predicted() const {
  return {predicted_, static_cast<std::size_t>(starts_[ffn_.runs()])};
}

ffn::FoundNeurons DeviceAuditedSide::TakeActive() {
  active_.clear();
  active_h_.clear();
  const std::size_t count = starts_[2 * ffn_.runs() + 1];
  for (const int id : std::span<const int>(live_, count)) {
    if (h_[id] == 0) continue;
    active_.push_back(id);
    active_h_.push_back(h_[id]);
  }
  return {.ids = active_, .h = active_h_.data(), .stride = base::IntSize(active_)};
}

}  // namespace thermocline::gpu
