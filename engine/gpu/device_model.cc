#include "engine/gpu/device_model.h"

#include <algorithm>
#include <cstring>

#include "engine/base/index.h"

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

// Rows of `ids` one behind the other at `to`.
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

}  // namespace

DeviceModel::DeviceModel(Params p)
    : device_(p.device),
      config_(p.config),
      weights_(p.weights),
      hot_predictors_(std::move(p.predictors)),
      placement_(std::move(p.placement)),
      layers_(p.weights.layers.size()) {}

Result<std::unique_ptr<DeviceModel>> DeviceModel::Create(Params params) {
  ASSIGN_OR_RETURN(auto model, Plan(std::move(params)));
  RETURN_IF_ERROR(model->Rebuild());
  return model;
}

Result<std::unique_ptr<DeviceModel>> DeviceModel::Plan(Params params) {
  auto model = std::unique_ptr<DeviceModel>(new DeviceModel(std::move(params)));
  RETURN_IF_ERROR(model->Validate());
  for (int l = 0; l < model->config_.num_hidden_layers; ++l) model->PlanLayer(l);
  if (model->placement_.head) {
    const model::NormWeights& norm = model->weights_.output_norm;
    model->output_norm_ = norm;
    const std::size_t d = model->config_.hidden_size;
    model->head_.Add(&model->output_norm_.weight, d, norm.weight);
    if (norm.bias != nullptr) model->head_.Add(&model->output_norm_.bias, d, norm.bias);
    model->PlanLinear(model->weights_.output, model->output_, model->head_);
  }
  return model;
}

Status DeviceModel::Validate() const {
  const int layers = config_.num_hidden_layers, home = placement_.home_layers;
  if (home < 0 || home > layers || (placement_.head && home != layers)) {
    return base::InvalidArgument(
        "placement: ", home, " of ", layers, " layers on the GPU",
        placement_.head ? " with the head" : "",
        ": layers are there from the first on, the head after all of them");
  }
  if (!weights_.has_down_rows()) return OkStatus();
  if (placement_.hot.size() != layers_.size()) {
    return base::InvalidArgument("placement: neurons of ", placement_.hot.size(),
                                 " layers, but the model has ", layers);
  }
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const std::vector<int>& hot = placement_.hot[l];
    RETURN_IF_ERROR(CheckIds(hot, l, config_.intermediate_size));
    const bool is_home = static_cast<int>(l) < home;
    const bool both = is_home ? base::IntSize(hot) < config_.intermediate_size : !hot.empty();
    if (both && device_.properties().unified) {
      return base::InvalidArgument(
          "placement: layer ", l, " is shared by GPU and CPU, but on ", device_.properties().name,
          " both read one memory, so sharing only costs time: plan for a unified memory");
    }
  }
  return OkStatus();
}

Status DeviceModel::Rebuild() {
  ASSIGN_OR_RETURN(stream_, device::DeviceStream::Create(device_));
  ASSIGN_OR_RETURN(DeviceUploader uploader, DeviceUploader::Create(*stream_));
  for (DeviceArena* arena : {&dense_, &neurons_, &predictors_, &head_})
    RETURN_IF_ERROR(arena->Allocate(device_));
  for (DeviceArena* arena : {&dense_, &neurons_, &predictors_, &head_})
    RETURN_IF_ERROR(arena->Upload(uploader, *stream_));
  for (DeviceLayer& layer : layers_)
    layer.gate.slots = layer.up.slots = layer.down.slots = layer.slots;
  return UploadPanels(uploader);
}

void DeviceModel::PlanLayer(int index) {
  const std::size_t at = index;
  const model::LayerWeights& from = weights_.layers[at];
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
    if (from.gate.linear.weight.rows > 0) PlanPanels(from.gate, dense.gate);
    PlanPanels(from.up, dense.up);
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
    if (matrix.bias != nullptr)
      neurons_.Add(&out.bias, static_cast<std::size_t>(matrix.weight.rows), matrix.bias);
  };
  const bool gated = from.gate.linear.weight.rows > 0;
  if (gated) rows(from.gate.linear.weight.type, from.gate.linear.weight.cols, to.gate);
  rows(from.up.linear.weight.type, from.up.linear.weight.cols, to.up);
  rows(from.down_rows.type, from.down_rows.cols, to.down);
  bias(from.gate.linear, to.dense.gate.linear);
  bias(from.up.linear, to.dense.up.linear);
  if (from.down.bias != nullptr)
    neurons_.Add(&to.dense.down.bias, static_cast<std::size_t>(config_.hidden_size),
                 from.down.bias);
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
  arena.Add(&to.weight.data, from.weight.bytes(), from.weight.data);
  if (from.bias != nullptr)
    arena.Add(&to.bias, static_cast<std::size_t>(from.weight.rows), from.bias);
}

void DeviceModel::PlanNorm(const model::NormWeights& from, int n, model::NormWeights& to) {
  const std::size_t count = n;
  if (from.weight != nullptr) dense_.Add(&to.weight, count, from.weight);
  if (from.bias != nullptr) dense_.Add(&to.bias, count, from.bias);
}

void DeviceModel::PlanPanels(const model::NeuronMatrix& from, model::NeuronMatrix& to) {
  model::Linear source = from.linear;
  if (from.layout == model::Layout::kRows) {
    source.weight.data = nullptr;  // no copy
    in_rows_.push_back({&from, &to});
  }
  PlanLinear(source, to.linear, dense_);
}

Status DeviceModel::UploadPanels(DeviceUploader& uploader) {
  for (const InRows& matrix : in_rows_) {
    const kernels::PackedMatrix& from = matrix.from->linear.weight;
    const std::size_t panel_bytes = kernels::PanelBytes(from.type, from.cols);
    auto* to = const_cast<std::uint8_t*>(matrix.to->linear.weight.data);
    for (int panel = 0; panel < kernels::NumPanels(from.rows); ++panel, to += panel_bytes) {
      kernels::PanelFromRows(from.type, from.panel(panel), from.cols,
                             reinterpret_cast<std::uint8_t*>(uploader.piece()));
      RETURN_IF_ERROR(uploader.Send(to, panel_bytes));
    }
  }
  return OkStatus();
}

Status DeviceModel::UploadNeurons(int layer, const model::LayerWeights& rows) {
  const DeviceLayer& to = this->layer(layer);
  if (!to.has_rows() || to.neurons == 0) return OkStatus();
  ASSIGN_OR_RETURN(DeviceUploader uploader, DeviceUploader::Create(*stream_));
  const std::vector<int>& hot = placement_.hot[layer];
  const auto upload = [&](const kernels::RowMatrix& from, const kernels::DeviceRows& matrix) {
    return UploadRows(from, hot, const_cast<std::uint8_t*>(matrix.data), uploader);
  };
  if (to.gate.cols > 0) RETURN_IF_ERROR(upload(rows.gate.rows(), to.gate));
  RETURN_IF_ERROR(upload(rows.up.rows(), to.up));
  return upload(rows.down_rows, to.down);
}

std::size_t DeviceModel::bytes() const {
  return dense_.bytes() + neurons_.bytes() + predictors_.bytes() + head_.bytes();
}

}  // namespace thermocline::gpu
