// The weights of a model's part on a device.
//
// Layers 0 .. home_layers - 1 are on the device except for cold neurons: attention, norms and the
// hot neurons. Later layers are at home on the CPU, and may have hot neurons on the device too. A
// hot neuron's rows are at its slot, its index in the layer's hot list. Attention, norms and head
// lie byte for byte as in model::Weights, so an upload is a copy.
//
// All device memory is allocated at once; the weights follow layer by layer, from any caller that
// has a layer in memory. So the host never needs to hold more than one layer of the device's part,
// and nothing of it afterwards.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/device/stream.h"
#include "engine/ffn/neuron_split.h"
#include "engine/gpu/device_arena.h"
#include "engine/model/model_config.h"
#include "engine/predictor/predictors.h"
#include "kernels/device_ops.h"

namespace thermocline::gpu {

struct DevicePlacement {
  int home_layers = 0;  // 0 .. L
  bool head = false;    // the last norm and the head; requires home_layers == L
  // [L] numbers of the hot neurons, ascending. Empty if the model has no down rows: then each layer
  // is computed wholly on the device or wholly on the CPU.
  ffn::NeuronIds hot;
  // If both sides share one memory, a layer is split only if its cold neurons come from flash.
  bool cold_on_flash = false;
};

// One layer in the form that the device's kernels take.
struct DeviceLayer {
  bool home = false;    // the device computes the layer's attention and norms
  bool shared = false;  // a home layer whose cold neurons the CPU computes
  int neurons = 0;      // number of hot neurons; F or 0 in layers without down rows
  // On the device: for home layers norms, attention, biases and, without down rows, the panels of
  // gate, up and down; for other layers the biases of gate and up.
  model::LayerWeights dense;
  kernels::DeviceRows gate, up, down;     // of the hot neurons; gate without columns: not gated
  const std::int32_t* slots = nullptr;    // [F]; null: all neurons are hot
  kernels::SignPlanes planes;             // of the hot neurons by slot; no rows: no sign predictor
  const std::int32_t* columns = nullptr;  // of the sign predictor; null: all
  int sign_slices = 0;
  const std::int32_t* thresholds = nullptr;  // [F] by neuron
  kernels::PackedMatrix fc1, fc2;            // fc2 by slot; no rows: there is no low-rank predictor
  float low_rank_threshold = 0;
  bool before_norm = false;

  bool has_rows() const { return down.cols > 0; }
};

// Const after construction, except for Rebuild. Borrows its parameters; owns device memory.
class DeviceModel {
 public:
  struct Params {
    device::Device& device;
    const model::ModelConfig& config;
    // The host's weights: Plan reads types and shapes, only the uploads read data.
    const model::Weights& weights;
    std::unique_ptr<predictor::Predictors> predictors;  // of the hot neurons (SubsetOf), or null
    DevicePlacement placement;
  };
  // Allocates nothing yet. InvalidArgument for an impossible placement.
  static Result<std::unique_ptr<DeviceModel>> Plan(Params params);
  // Plan, then Rebuild; the uploads follow.
  static Result<std::unique_ptr<DeviceModel>> Create(Params params);
  // Allocates, and uploads the predictors: at load, and again after the device was reset. The
  // weights are zeros. ResourceExhausted with a table of the memory needed, Unavailable with the
  // device's error.
  Status Rebuild();
  // Uploads the device's part of a layer, except the rows of neurons: attention, norms, biases and
  // panels, from the host's `from`, which must have them. All uploads require Rebuild before, and
  // no Uploaded yet.
  Status UploadDense(int layer, const model::LayerWeights& from);
  // Uploads the rows of the layer's hot neurons from the host's `rows`.
  Status UploadNeurons(int layer, const model::LayerWeights& rows);
  // Uploads the last norm and the head, if they belong to the device's part.
  Status UploadHead(const model::NormWeights& norm, const model::Linear& output);
  // Frees the memory that the uploads used.
  void Uploaded() { uploader_.reset(); }

  const std::vector<DeviceLayer>& layers() const { return layers_; }
  const DeviceLayer& layer(int index) const { return layers_[index]; }
  const model::NormWeights& output_norm() const { return output_norm_; }
  const model::Linear& output() const { return output_; }
  const DevicePlacement& placement() const { return placement_; }
  const model::ModelConfig& config() const { return config_; }
  device::Device& device() const { return device_; }
  device::DeviceStream& stream() const { return *stream_; }
  const kernels::DeviceOps& ops() const { return device_.ops(); }
  // The bytes of device memory.
  std::size_t bytes() const;

 private:
  explicit DeviceModel(Params params);
  Status Validate(const model::Weights& weights) const;
  void PlanLayer(int layer, const model::LayerWeights& from);
  void PlanNeurons(const model::LayerWeights& from, const std::vector<int>& hot, DeviceLayer& to);
  void PlanPredictors(const predictor::LayerPredictors& from, const std::vector<int>& hot,
                      DeviceLayer& to);
  void PlanLinear(const model::Linear& from, model::Linear& to, DeviceArena& arena);
  void PlanNorm(const model::NormWeights& from, int n, model::NormWeights& to);
  Status UploadNorm(const model::NormWeights& from, int n, const model::NormWeights& to);
  // Uploads a matrix and its bias, as far as they belong to the device's part.
  Status UploadLinear(const model::Linear& from, const model::Linear& to);
  // Uploads the matrix as panels, whatever its layout on the host.
  Status UploadPanels(const model::NeuronMatrix& from, const model::Linear& to);

  device::Device& device_;
  const model::ModelConfig& config_;
  const std::unique_ptr<predictor::Predictors> hot_predictors_;
  const DevicePlacement placement_;
  std::unique_ptr<device::DeviceStream> stream_;
  DeviceArena dense_{"attention and norms"}, neurons_{"hot neurons"}, predictors_{"predictors"},
      head_{"head"};
  std::vector<DeviceLayer> layers_;
  model::NormWeights output_norm_;
  model::Linear output_;
  std::vector<std::vector<std::int32_t>> tables_;  // sources of some of the device's arrays
  std::optional<DeviceUploader> uploader_;         // from Rebuild to Uploaded
};

}  // namespace thermocline::gpu
