// The part of a model that is at home on a device: its weights there.
//
// Layers 0 .. home_layers - 1 are whole on the device but for cold neurons: attention, norms and
// the hot neurons. Layers after them are at home on the CPU, and may have hot neurons on the device
// too. A hot neuron's rows lie at its slot, its place in the layer's hot list. Attention, norms and
// head lie byte for byte as in model::Weights, so an upload is a copy.
//
// All of the device's memory is allocated at once; the weights follow layer by layer, from any
// caller that has a layer at hand. So the host need never hold more than one layer of what is here,
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
  // [L] ascending; empty where the model has no down rows: then layers are whole on one side.
  ffn::NeuronIds hot;
  // With one memory both sides read all: there a layer is shared only where its cold neurons come
  // from flash.
  bool cold_on_flash = false;
};

// One layer as kernels on the device see it.
struct DeviceLayer {
  bool home = false;
  bool shared = false;  // home, and the CPU computes its cold neurons
  int neurons = 0;      // hot ones; of layers without down rows F or 0
  // On the device. Of home layers norms, attention, biases and, without down rows, the panels of
  // gate, up and down; of others the biases of gate and up.
  model::LayerWeights dense;
  kernels::DeviceRows gate, up, down;     // of the hot neurons; gate without columns: not gated
  const std::int32_t* slots = nullptr;    // [F]; null: all neurons are hot
  kernels::SignPlanes planes;             // of the hot neurons by slot; no rows: no sign predictor
  const std::int32_t* columns = nullptr;  // of the sign predictor; null: all
  int sign_slices = 0;
  const std::int32_t* thresholds = nullptr;  // [F] by neuron
  kernels::PackedMatrix fc1, fc2;            // fc2 by slot; no rows: no low-rank predictor
  float low_rank_threshold = 0;
  bool before_norm = false;

  bool has_rows() const { return down.cols > 0; }
};

// Const after it is made, but for Rebuild. Borrows all it is given; owns memory of the device.
class DeviceModel {
 public:
  struct Params {
    device::Device& device;
    const model::ModelConfig& config;
    // The host's weights: types and shapes are read by Plan, data by the uploads alone.
    const model::Weights& weights;
    std::unique_ptr<predictor::Predictors> predictors;  // of the hot neurons (SubsetOf), or null
    DevicePlacement placement;
  };
  // Allocates nothing yet. InvalidArgument for a placement that cannot be.
  static Result<std::unique_ptr<DeviceModel>> Plan(Params params);
  // Plan, then Rebuild; the uploads follow.
  static Result<std::unique_ptr<DeviceModel>> Create(Params params);
  // Allocates, and uploads the predictors: at load, and anew after the device was reset. The
  // weights are zeros. ResourceExhausted with a table of what was needed, Unavailable with the
  // device's error.
  Status Rebuild();
  // Uploads the part of a layer that is here, except the rows of neurons: attention, norms, biases
  // and panels, from the host's `from`, which has them. Requires, as all uploads: Rebuild, and
  // Uploaded not yet.
  Status UploadDense(int layer, const model::LayerWeights& from);
  // The rows of the layer's hot neurons, from the host's `rows`.
  Status UploadNeurons(int layer, const model::LayerWeights& rows);
  // The last norm and the head, if they are here.
  Status UploadHead(const model::NormWeights& norm, const model::Linear& output);
  // Gives up the memory that the uploads went through.
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
  // The bytes of the device's memory.
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
  // A matrix and its bias, each where it is here.
  Status UploadLinear(const model::Linear& from, const model::Linear& to);
  // As panels, however the host has them.
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
  std::vector<std::vector<std::int32_t>> tables_;  // what some arrays are copied from
  std::optional<DeviceUploader> uploader_;         // from Rebuild to Uploaded
};

}  // namespace thermocline::gpu
