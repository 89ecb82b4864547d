// Puts a loaded model's layers and neurons on a device, and again after a device failure.
#include "engine/load/device_upload.h"
#include "engine/model/open/open_model.h"
#include "engine/predictor/subset.h"

namespace thermocline::load {
namespace {

Result<gpu::DeviceModel::Params> ParamsOf(const LoadedModel& model, device::Device& on,
                                          gpu::DevicePlacement placement) {
  gpu::DeviceModel::Params params{.device = on,
                                  .config = model.config,
                                  .weights = *model.weights,
                                  .predictors = nullptr,
                                  .placement = std::move(placement)};
  const ffn::NeuronIds& hot = params.placement.hot;
  if (model.predictors != nullptr && model.weights->has_down_rows() &&
      hot.size() == model.weights->layers.size()) {
    ASSIGN_OR_RETURN(params.predictors, predictor::SubsetOf(*model.predictors, hot));
  }
  return params;
}

gpu::DeviceForward::Params ForwardOf(const LoadedModel& model, gpu::DeviceModel& on,
                                     const DeviceSizes& sizes) {
  return {.model = on,
          .cpu = *model.ops,
          .tokens_max = sizes.tokens_max,
          .logits_max = sizes.logits_max,
          .context_length = sizes.context_length,
          .parts_max = sizes.parts_max,
          .kv_blocks = sizes.kv_blocks > 0 ? sizes.kv_blocks : nn::BlocksFor(sizes.context_length),
          .kv_type = model.kv_type,
          .attention_bytes = sizes.attention_bytes,
          .audits = model.audits() || sizes.audits,
          .reload = [&model] { return UploadAgain(model); }};
}

}  // namespace

Result<LoadedModel::DeviceBytes> LoadedModel::MeasureOnDevice(device::Device& on,
                                                              gpu::DevicePlacement placement,
                                                              const DeviceSizes& sizes) const {
  ASSIGN_OR_RETURN(auto params, ParamsOf(*this, on, std::move(placement)));
  ASSIGN_OR_RETURN(const auto planned, gpu::DeviceModel::Plan(std::move(params)));
  return DeviceBytes{planned->bytes(),
                     gpu::DeviceForward::BytesFor(ForwardOf(*this, *planned, sizes))};
}

Status LoadedModel::PlaceOnDevice(std::unique_ptr<device::Device> on,
                                  gpu::DevicePlacement placement, const DeviceSizes& sizes,
                                  const std::function<void(double)>& on_progress) {
  CHECK(split == nullptr && device == nullptr);
  if (stream != nullptr) {
    return base::FailedPrecondition(
        "whole layers are streamed from flash, which a GPU cannot share: give more memory, or pack "
        "the model's neurons instead (thermocline pack)");
  }
  const bool rows = weights->has_down_rows();
  if (rows) SetRows();
  placement.cold_on_flash = flash != nullptr;
  ASSIGN_OR_RETURN(auto params, ParamsOf(*this, *on, std::move(placement)));
  if (file == nullptr) {
    ASSIGN_OR_RETURN(file, model::OpenModelFile(path));
  }
  ASSIGN_OR_RETURN(auto on_device, gpu::DeviceModel::Create(std::move(params)));
  ASSIGN_OR_RETURN(auto forward, gpu::DeviceForward::Create(ForwardOf(*this, *on_device, sizes)));
  RETURN_IF_ERROR(UploadWeights(*this, *on_device, on_progress));
  if (rows) {
    ASSIGN_OR_RETURN(split,
                     ffn::NeuronSplit::Remove({.intermediate_size = config.intermediate_size,
                                               .weights = *weights,
                                               .flash = flash.get(),
                                               .deciding_held = memory.deciding_held,
                                               .hot = on_device->placement().hot},
                                              [&](int layer, const model::LayerWeights& from) {
                                                if (!HasRows(from)) return OkStatus();
                                                return on_device->UploadNeurons(layer, from);
                                              }));
    if (predictors != nullptr) RETURN_IF_ERROR(KeepColdPredictors());
  }
  on_device->Uploaded();
  // Only the tensors of the open file are still needed.
  file->vocabulary = {};
  file->metadata = Json::Object();
  gpu = std::move(on);
  device = std::move(on_device);
  device_forward = std::move(forward);
  return OkStatus();
}

}  // namespace thermocline::load
