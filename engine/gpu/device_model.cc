#include "engine/gpu/device_model.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "kernels/quantize.h"

namespace thermocline::gpu {
namespace {

std::size_t RowBytes(const kernels::DeviceRows& m) { return kernels::RowBytes(m.type, m.cols); }

Status CheckIds(const std::vector<int>& ids, std::size_t layer, int neurons) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= neurons || (i > 0 && ids[i] <= ids[i - 1])) {
      return base::InvalidArgument("placement: neuron ", ids[i], " of layer ", layer,
                                   " is out of order or not one of ", neurons,
                                   ": plan the placement anew for this model");
    }
  }
  return OkStatus();
}

// Uploads the rows of `ids` consecutively to `to`.
Status UploadRows(const kernels::RowMatrix& rows, const std::vector<int>& ids, std::uint8_t* to,
                  DeviceUploader& uploader) {
  const std::size_t row_bytes = kernels::RowBytes(rows.type, rows.cols),
                    at_once = DeviceUploader::kPieceBytes / row_bytes;
  for (std::size_t first = 0; first < ids.size(); first += at_once) {
    const std::size_t count = std::min(at_once, ids.size() - first);
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(uploader.piece() + i * row_bytes, rows.row(ids[first + i]), row_bytes);
    RETURN_IF_ERROR(uploader.Send(to + first * row_bytes, count * row_bytes));
  }
  return OkStatus();
}

// Rejects types for which a GPU has no kernels (model::ModelFile::for_device).
Status CheckTypes(const model::Weights& weights) {
  std::vector<kernels::DType> types = {weights.output.weight.type};
  for (const model::LayerWeights& l : weights.layers) {
    for (const model::Linear* linear :
         {&l.q, &l.k, &l.v, &l.attn_output, &l.gate.linear, &l.up.linear, &l.down})
      types.push_back(linear->weight.type);
    types.push_back(l.down_rows.type);
  }
  for (const kernels::DType type : types) {
    if (kernels::HasDeviceKernels(type)) continue;
    return base::Unimplemented(
        "weights are held as ", kernels::Traits(type).name,
        ", which has no kernels for GPUs: load the model for a GPU, or convert it to ",
        kernels::Traits(kernels::DeviceType(type)).name);
  }
  return OkStatus();
}

}  // namespace

DeviceModel::DeviceModel(Params p)
    : device_(p.device),
      config_(p.config),
      hot_predictors_(std::move(p.predictors)),
      placement_(std::move(p.placement)),
      layers_(p.weights.layers.size()) {}

Result<std::unique_ptr<DeviceModel>> DeviceModel::Create(Params params) {
  ASSIGN_OR_RETURN(auto model, Plan(std::move(params)));
  RETURN_IF_ERROR(model->Rebuild());
  return model;
}

Result<std::unique_ptr<DeviceModel>> DeviceModel::Plan(Params params) {
  const model::Weights& weights = params.weights;
  auto model = std::unique_ptr<DeviceModel>(new DeviceModel(std::move(params)));
  RETURN_IF_ERROR(model->Validate(weights));
  for (int l = 0; l < model->config_.num_hidden_layers; ++l) model->PlanLayer(l, weights.layers[l]);
  if (model->placement_.head) {
    const model::NormWeights& norm = weights.output_norm;
    const std::size_t d = model->config_.hidden_size;
    model->head_.Add(&model->output_norm_.weight, d);
    if (norm.bias != nullptr) model->head_.Add(&model->output_norm_.bias, d);
    model->PlanLinear(weights.output, model->output_, model->head_);
  }
  return model;
}

Status DeviceModel::Validate(const model::Weights& weights) const {
  const int layers = config_.num_hidden_layers, home = placement_.home_layers;
  if (home < 0 || home > layers || (placement_.head && home != layers)) {
    return base::InvalidArgument(
        "placement: ", home, " of ", layers, " layers on the GPU",
        placement_.head ? " with the head" : "",
        ": layers are there from the first on, the head after all of them");
  }
  RETURN_IF_ERROR(CheckTypes(weights));
  if (!weights.has_down_rows()) return OkStatus();
  if (placement_.hot.size() != layers_.size()) {
    return base::InvalidArgument("placement: neurons of ", placement_.hot.size(),
                                 " layers, but the model has ", layers);
  }
  for (int l = 0; l < base::IntSize(layers_); ++l) {
    const std::vector<int>& hot = placement_.hot[l];
    RETURN_IF_ERROR(CheckIds(hot, l, config_.intermediate_size));
    const bool is_home = l < home;
    const bool both = is_home ? base::IntSize(hot) < config_.intermediate_size : !hot.empty();
    if (both && device_.properties().unified && !placement_.cold_on_flash) {
      return base::InvalidArgument(
          "placement: layer ", l, " is shared by GPU and CPU, but on ", device_.properties().name,
          " both read one memory, so sharing only costs time: plan for a unified memory");
    }
  }
  return OkStatus();
}

Status DeviceModel::Rebuild() {
  ASSIGN_OR_RETURN(stream_, device::DeviceStream::Create(device_));
  uploader_.reset();  // of the earlier context
  ASSIGN_OR_RETURN(uploader_, DeviceUploader::Create(*stream_));
  for (DeviceArena* arena : {&dense_, &neurons_, &predictors_, &head_})
    RETURN_IF_ERROR(arena->Allocate(device_));
  for (DeviceArena* arena : {&dense_, &neurons_, &predictors_, &head_})
    RETURN_IF_ERROR(arena->Upload(*uploader_, *stream_));
  for (DeviceLayer& layer : layers_)
    layer.gate.slots = layer.up.slots = layer.down.slots = layer.slots;
  return OkStatus();
}

void DeviceModel::PlanLayer(int index, const model::LayerWeights& from) {
  const std::size_t at = index;
  DeviceLayer& to = layers_[at];
  model::LayerWeights& dense = to.dense;
  const auto d = config_.hidden_size;
  to.home = index < placement_.home_layers;
  if (to.home) {
    PlanNorm(from.attn_norm, d, dense.attn_norm);
    PlanNorm(from.attn_second_norm, d, dense.attn_second_norm);
    PlanNorm(from.ffn_norm, d, dense.ffn_norm);
    PlanNorm(from.q_norm, config_.head_dim, dense.q_norm);
    PlanNorm(from.k_norm, config_.head_dim, dense.k_norm);
    PlanLinear(from.q, dense.q, dense_);
    PlanLinear(from.k, dense.k, dense_);
    PlanLinear(from.v, dense.v, dense_);
    PlanLinear(from.attn_output, dense.attn_output, dense_);
  }
  if (from.down_rows.rows > 0) {
    const std::vector<int>& hot = placement_.hot[at];
    to.neurons = base::IntSize(hot);
    to.shared = to.home && to.neurons < config_.intermediate_size;
    if (to.home || to.neurons > 0) PlanNeurons(from, hot, to);
    if (hot_predictors_ != nullptr && to.neurons > 0)
      PlanPredictors(hot_predictors_->layers[at], hot, to);
  } else if (to.home) {
    to.neurons = config_.intermediate_size;
    if (from.gate.linear.weight.rows > 0) PlanLinear(from.gate.linear, dense.gate.linear, dense_);
    PlanLinear(from.up.linear, dense.up.linear, dense_);
    PlanLinear(from.down, dense.down, dense_);
  }
}

void DeviceModel::PlanNeurons(const model::LayerWeights& from, const std::vector<int>& hot,
                              DeviceLayer& to) {
  const int f = config_.intermediate_size;
  const auto rows = [&](const kernels::DType type, int cols, kernels::DeviceRows& out) {
    out = {.type = type, .neurons = f, .cols = cols};
    neurons_.Add(&out.data, hot.size() * RowBytes(out));
  };
  if (to.neurons < f) {
    std::vector<std::int32_t>& slots = tables_.emplace_back(static_cast<std::size_t>(f), -1);
    for (std::size_t i = 0; i < hot.size(); ++i) slots[hot[i]] = static_cast<std::int32_t>(i);
    neurons_.Add(&to.slots, slots.size(), slots.data());
  }
  const auto bias = [&](const model::Linear& matrix, model::Linear& out) {
    if (matrix.bias != nullptr) neurons_.Add(&out.bias, matrix.weight.rows);
  };
  const bool gated = from.gate.linear.weight.rows > 0;
  if (gated) rows(from.gate.linear.weight.type, from.gate.linear.weight.cols, to.gate);
  rows(from.up.linear.weight.type, from.up.linear.weight.cols, to.up);
  rows(from.down_rows.type, from.down_rows.cols, to.down);
  bias(from.gate.linear, to.dense.gate.linear);
  bias(from.up.linear, to.dense.up.linear);
  if (from.down.bias != nullptr) neurons_.Add(&to.dense.down.bias, config_.hidden_size);
}

void DeviceModel::PlanPredictors(const predictor::LayerPredictors& from,
                                 const std::vector<int>& hot, DeviceLayer& to) {
  if (from.sign.has_value()) {
    const predictor::SignPredictor& sign = *from.sign;
    const std::size_t words = hot.size() * kernels::SignWords(sign.planes.cols);
    to.planes = sign.planes;
    to.sign_slices = sign.slices;
    predictors_.Add(&to.planes.sign, words, sign.planes.sign);
    if (sign.planes.magnitude != nullptr)
      predictors_.Add(&to.planes.magnitude, words, sign.planes.magnitude);
    if (!sign.columns.empty())
      predictors_.Add(&to.columns, sign.columns.size(), sign.columns.data());
    std::vector<std::int32_t>& thresholds =
        tables_.emplace_back(static_cast<std::size_t>(config_.intermediate_size));
    for (std::size_t i = 0; i < hot.size(); ++i) thresholds[hot[i]] = sign.thresholds[i];
    predictors_.Add(&to.thresholds, thresholds.size(), thresholds.data());
  }
  if (!from.low_rank.has_value()) return;
  const predictor::LowRankRun& run = *from.low_rank;
  to.low_rank_threshold = run.threshold;
  to.before_norm = run.before_norm;
  to.fc1 = run.fc1;
  to.fc2 = run.fc2;
  predictors_.Add(&to.fc1.data, run.fc1.bytes(), run.fc1.data);
  predictors_.Add(&to.fc2.data, run.fc2.bytes(), run.fc2.data);
}

void DeviceModel::PlanLinear(const model::Linear& from, model::Linear& to, DeviceArena& arena) {
  to.weight = from.weight;
  arena.Add(&to.weight.data, from.weight.bytes());
  if (from.bias != nullptr) arena.Add(&to.bias, from.weight.rows);
}

void DeviceModel::PlanNorm(const model::NormWeights& from, int n, model::NormWeights& to) {
  const std::size_t count = n;
  if (from.weight != nullptr) dense_.Add(&to.weight, count);
  if (from.bias != nullptr) dense_.Add(&to.bias, count);
}

Status DeviceModel::UploadDense(int index, const model::LayerWeights& from) {
  const DeviceLayer& layer = this->layer(index);
  const model::LayerWeights& to = layer.dense;
  const int d = config_.hidden_size;
  RETURN_IF_ERROR(UploadNorm(from.attn_norm, d, to.attn_norm));
  RETURN_IF_ERROR(UploadNorm(from.attn_second_norm, d, to.attn_second_norm));
  RETURN_IF_ERROR(UploadNorm(from.ffn_norm, d, to.ffn_norm));
  RETURN_IF_ERROR(UploadNorm(from.q_norm, config_.head_dim, to.q_norm));
  RETURN_IF_ERROR(UploadNorm(from.k_norm, config_.head_dim, to.k_norm));
  RETURN_IF_ERROR(UploadLinear(from.q, to.q));
  RETURN_IF_ERROR(UploadLinear(from.k, to.k));
  RETURN_IF_ERROR(UploadLinear(from.v, to.v));
  RETURN_IF_ERROR(UploadLinear(from.attn_output, to.attn_output));
  RETURN_IF_ERROR(UploadPanels(from.gate, to.gate.linear));
  RETURN_IF_ERROR(UploadPanels(from.up, to.up.linear));
  if (to.down.weight.data != nullptr) return UploadLinear(from.down, to.down);
  if (to.down.bias == nullptr) return OkStatus();
  return uploader_->Copy(const_cast<float*>(to.down.bias), from.down.bias, d * sizeof(float));
}

Status DeviceModel::UploadHead(const model::NormWeights& norm, const model::Linear& output) {
  RETURN_IF_ERROR(UploadNorm(norm, config_.hidden_size, output_norm_));
  return UploadLinear(output, output_);
}

Status DeviceModel::UploadNorm(const model::NormWeights& from, int n,
                               const model::NormWeights& to) {
  const std::size_t bytes = n * sizeof(float);
  if (to.weight != nullptr)
    RETURN_IF_ERROR(uploader_->Copy(const_cast<float*>(to.weight), from.weight, bytes));
  if (to.bias == nullptr) return OkStatus();
  return uploader_->Copy(const_cast<float*>(to.bias), from.bias, bytes);
}

Status DeviceModel::UploadLinear(const model::Linear& from, const model::Linear& to) {
  if (to.weight.data != nullptr) {
    CHECK(from.weight.data != nullptr && from.weight.bytes() == to.weight.bytes());
    RETURN_IF_ERROR(uploader_->Copy(const_cast<std::uint8_t*>(to.weight.data), from.weight.data,
                                    to.weight.bytes()));
  }
  if (to.bias == nullptr) return OkStatus();
  return uploader_->Copy(const_cast<float*>(to.bias), from.bias, from.weight.rows * sizeof(float));
}

Status DeviceModel::UploadPanels(const model::NeuronMatrix& from, const model::Linear& to) {
  if (to.weight.data == nullptr || from.layout == model::Layout::kPanels)
    return UploadLinear(from.linear, to);
  RETURN_IF_ERROR(UploadLinear(from.linear, {{}, to.bias}));
  const kernels::PackedMatrix& weight = from.linear.weight;
  CHECK(weight.data != nullptr);
  const std::size_t panel_bytes = kernels::PanelBytes(weight.type, weight.cols);
  auto* out = const_cast<std::uint8_t*>(to.weight.data);
  for (int panel = 0; panel < kernels::NumPanels(weight.rows); ++panel, out += panel_bytes) {
    kernels::PanelFromRows(weight.type, weight.panel(panel), weight.cols,
                           base::Octets(uploader_->piece()));
    RETURN_IF_ERROR(uploader_->Send(out, panel_bytes));
  }
  return OkStatus();
}

Status DeviceModel::UploadNeurons(int layer, const model::LayerWeights& rows) {
  const DeviceLayer& to = this->layer(layer);
  if (!to.has_rows() || to.neurons == 0) return OkStatus();
  const std::vector<int>& hot = placement_.hot[layer];
  const auto upload = [&](const kernels::RowMatrix& from, const kernels::DeviceRows& matrix) {
    return UploadRows(from, hot, const_cast<std::uint8_t*>(matrix.data), *uploader_);
  };
  if (to.gate.cols > 0) RETURN_IF_ERROR(upload(rows.gate.rows(), to.gate));
  RETURN_IF_ERROR(upload(rows.up.rows(), to.up));
  return upload(rows.down_rows, to.down);
}

std::size_t DeviceModel::bytes() const {
  return dense_.bytes() + neurons_.bytes() + predictors_.bytes() + head_.bytes();
}

}  // namespace thermocline::gpu
