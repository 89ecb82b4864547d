#include "engine/gpu/device_experts.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::gpu {
namespace {

using Flag = DeviceHandOff::Flag;

int Places(const model::ModelConfig& config, int tokens_max) {
  return tokens_max * config.experts.num_experts_per_tok;
}

std::size_t BytesEach(const model::Linear& all, int experts) {
  return all.weight.bytes() / experts;
}

}  // namespace

DeviceExperts::DeviceExperts(const Params& p)
    : p_(p), layers_(p.weights.layers.size()), flags_(p.device) {
  const model::ExpertConfig& e = p.config.experts;
  const int d = p.config.hidden_size, f = e.intermediate_size;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const model::ExpertWeights& w = p.weights.layers[l].experts;
    const std::vector<int>& ids = p.hot.ids()[l];
    Layer& layer = layers_[l];
    if (ids.empty() || !w.any()) continue;
    layer.slots.assign(e.num_experts, -1);
    for (int i = 0; i < base::IntSize(ids); ++i) layer.slots[ids[i]] = i;
    const auto add = [&](const model::Linear& all, int rows, std::uint8_t** data, float** bias) {
      weights_.Add(data, ids.size() * BytesEach(all, e.num_experts));
      if (all.bias != nullptr) weights_.Add(bias, Area(base::IntSize(ids), rows));
    };
    if (p.config.architecture->gated) add(w.gate, f, &layer.gate, &layer.gate_bias);
    add(w.up, f, &layer.up, &layer.up_bias);
    add(w.down, d, &layer.down, &layer.down_bias);
  }
  const int places = Places(p.config, p.tokens_max);
  AddActivations(work_, places, d, &x_);
  AddActivations(work_, places, f, &h_);
  work_.Add(&up_, Area(places, f));
  work_.Add(&y_, Area(places, d));
}

std::size_t DeviceExperts::BytesFor(const Params& params) { return DeviceExperts(params).bytes(); }

std::size_t DeviceExperts::HostBytes(const model::ModelConfig& config, int tokens_max) {
  return 2 * Area(Places(config, tokens_max), config.hidden_size) * sizeof(float) +
         DeviceUploader::kPieceBytes;
}

Result<std::unique_ptr<DeviceExperts>> DeviceExperts::Create(const Params& params) {
  auto experts = std::unique_ptr<DeviceExperts>(new DeviceExperts(params));
  RETURN_IF_ERROR(params.device.Use());
  RETURN_IF_ERROR(experts->weights_.Allocate(params.device));
  RETURN_IF_ERROR(experts->work_.Allocate(params.device));
  const std::size_t rows =
      Area(Places(params.config, params.tokens_max), params.config.hidden_size) * sizeof(float);
  ASSIGN_OR_RETURN(experts->mapped_,
                   device::MappedBuffer::Allocate(params.device, "rows of experts", 2 * rows));
  ASSIGN_OR_RETURN(experts->stream_, device::DeviceStream::Create(params.device));
  RETURN_IF_ERROR(experts->flags_.Allocate());
  RETURN_IF_ERROR(experts->Upload());
  return experts;
}

Status DeviceExperts::Upload() {
  ASSIGN_OR_RETURN(DeviceUploader uploader, DeviceUploader::Create(*stream_));
  return p_.hot.ForEach([&](int l, int expert, const ffn::ExpertPlace& from) -> Status {
    const model::ExpertWeights& w = p_.weights.layers[l].experts;
    const Layer& layer = layers_[l];
    const std::size_t slot = layer.slots[expert];
    const auto copy = [&](std::uint8_t* to, const model::Linear& all, const std::uint8_t* data) {
      const std::size_t bytes = BytesEach(all, p_.config.experts.num_experts);
      return uploader.Copy(to + slot * bytes, data, bytes);
    };
    if (layer.gate != nullptr) RETURN_IF_ERROR(copy(layer.gate, w.gate, from.gate));
    RETURN_IF_ERROR(copy(layer.up, w.up, from.up));
    RETURN_IF_ERROR(copy(layer.down, w.down, from.down));
    return UploadBiases(uploader, l, expert);
  });
}

Status DeviceExperts::UploadBiases(DeviceUploader& uploader, int l, int expert) const {
  const model::ExpertWeights& w = p_.weights.layers[l].experts;
  const Layer& layer = layers_[l];
  const auto copy = [&](float* to, const model::Linear& all) -> Status {
    if (to == nullptr) return OkStatus();
    const int rows = all.weight.rows / p_.config.experts.num_experts;
    return uploader.Copy(to + nn::Offset(layer.slots[expert], rows),
                         all.bias + nn::Offset(expert, rows), Area(rows, sizeof(float)));
  };
  RETURN_IF_ERROR(copy(layer.gate_bias, w.gate));
  RETURN_IF_ERROR(copy(layer.up_bias, w.up));
  return copy(layer.down_bias, w.down);
}

void DeviceExperts::Start(const Job& job) {
  busy_.Restart();
  if (status_.ok()) status_ = p_.device.Use();
  if (status_.ok()) status_ = Put(job);
  flags_.Begin();
}

Status DeviceExperts::Put(const Job& job) {
  const int d = p_.config.hidden_size, f = p_.config.experts.intermediate_size;
  float* input = mapped_.host<float>();
  int rows = 0;
  for (const ffn::ExpertUnit* unit : job.units) {
    for (int i = 0; i < unit->tokens; ++i, ++rows)
      std::copy_n(job.input.hidden.x.data() + nn::Offset(unit->ids[i], d), d,
                  input + nn::Offset(rows, d));
  }
  RETURN_IF_ERROR(stream_->CopyToDevice(x_.x, input, Area(rows, d) * sizeof(float)));
  const kernels::DenseOps& ops = p_.device.ops().dense;
  RETURN_IF_ERROR(flags_.Begin(*stream_));
  if (x_.q != nullptr)
    RETURN_IF_ERROR(Check(ops.quantize({.x = x_, .tokens = rows}, stream_->handle()),
                          "rounding the input of experts"));
  for (const ffn::ExpertUnit* unit : job.units) RETURN_IF_ERROR(PutUnit(job.layer, *unit));
  const bool gated = p_.config.architecture->gated;
  RETURN_IF_ERROR(Check(ops.gated({.gate = h_.x,
                                   .up = gated ? up_ : nullptr,
                                   .n = f,
                                   .tokens = rows,
                                   .activation = ffn::GateOf(p_.config.hidden_act),
                                   .threshold = static_cast<float>(p_.config.fatrelu_threshold),
                                   .out = h_},
                                  stream_->handle()),
                        "the activation of experts"));
  for (const ffn::ExpertUnit* unit : job.units) RETURN_IF_ERROR(PutDown(job.layer, *unit));
  const std::size_t at = Area(Places(p_.config, p_.tokens_max), d);
  return flags_.Publish(*stream_, Flag::kDeviceSums, y_, mapped_.host<float>() + at,
                        mapped_.on_device<float>() + at, Area(rows, d) * sizeof(float));
}

Status DeviceExperts::PutUnit(int l, const ffn::ExpertUnit& unit) const {
  const Layer& layer = layers_[l];
  const int f = unit.neurons(), slot = layer.slots[unit.expert];
  const kernels::DeviceActivations x = TokensFrom(x_, unit.hot_row);
  const auto of = [&](const model::Linear& like, std::uint8_t* data, const float* bias) {
    model::Linear here = like;
    here.weight.data = data + slot * like.weight.bytes();
    here.bias = bias == nullptr ? nullptr : bias + nn::Offset(slot, like.weight.rows);
    return here;
  };
  float* h = h_.x + nn::Offset(unit.hot_row, f);
  if (layer.gate == nullptr)
    return Multiply(of(unit.up, layer.up, layer.up_bias), x, unit.tokens, h);
  RETURN_IF_ERROR(Multiply(of(unit.gate, layer.gate, layer.gate_bias), x, unit.tokens, h));
  return Multiply(of(unit.up, layer.up, layer.up_bias), x, unit.tokens,
                  up_ + nn::Offset(unit.hot_row, f));
}

Status DeviceExperts::PutDown(int l, const ffn::ExpertUnit& unit) const {
  const Layer& layer = layers_[l];
  const int d = p_.config.hidden_size, slot = layer.slots[unit.expert];
  model::Linear down = unit.down;
  down.weight.data = layer.down + slot * down.weight.bytes();
  down.bias = layer.down_bias == nullptr ? nullptr : layer.down_bias + nn::Offset(slot, d);
  return Multiply(down, TokensFrom(h_, unit.hot_row), unit.tokens,
                  y_ + nn::Offset(unit.hot_row, d));
}

Status DeviceExperts::Multiply(const model::Linear& matrix, const kernels::DeviceActivations& x,
                               int tokens, float* out) const {
  return Check(
      p_.device.ops().dense.gemm({.gemm = {.weights = matrix.weight,
                                           .activations = x.view(),
                                           .tokens = tokens,
                                           .out = out,
                                           .out_stride = matrix.weight.rows,
                                           .panel_begin = 0,
                                           .panel_end = kernels::NumPanels(matrix.weight.rows)},
                                  .bias = matrix.bias},
                                 stream_->handle()),
      "a product of an expert");
}

Result<const float*> DeviceExperts::Await() {
  if (status_.ok()) status_ = flags_.Wait(Flag::kDeviceSums);
  busy_s_ += busy_.Seconds();
  if (!status_.ok()) return status_;
  return mapped_.host<float>() + Area(Places(p_.config, p_.tokens_max), p_.config.hidden_size);
}

}  // namespace thermocline::gpu
