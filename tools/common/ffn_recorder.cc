#include "tools/common/ffn_recorder.h"

#include <algorithm>
#include <cmath>

#include "engine/base/index.h"
#include "engine/base/ratio.h"

namespace thermocline::tools {
namespace {

using model::Activation;

constexpr int kChunk = 128;  // tokens of one prefill step

class Recorder final : public ffn::FfnTap {
 public:
  Recorder(const model::ModelConfig& config, std::span<const int> layers, int tokens,
           const RecordOptions& options)
      : config_(config), options_(options) {
    for (const int layer : layers) {
      LayerRecording& r = recordings_.emplace_back();
      r.layer = layer;
      r.active = offline::BitMatrix(tokens, config.intermediate_size);
      r.inputs.reserve(base::Area(tokens, config.hidden_size));
      if (options.magnitudes) r.magnitudes.reserve(base::Area(tokens, config.intermediate_size));
    }
  }

  void OnLayer(const ffn::FfnSample& s) override {
    const auto found = std::find_if(recordings_.begin(), recordings_.end(),
                                    [&](const LayerRecording& r) { return r.layer == s.layer; });
    if (found == recordings_.end()) return;
    LayerRecording& r = *found;
    const int f = config_.intermediate_size;
    const float* inputs = options_.before_norm ? s.residual : s.hidden;
    r.inputs.insert(r.inputs.end(), inputs, inputs + base::Area(s.tokens, config_.hidden_size));
    for (int t = 0; t < s.tokens; ++t) {
      const float* neurons = s.neurons + base::Area(t, f);
      for (int i = 0; i < f; ++i) {
        if (neurons[i] != 0) r.active.Set(r.tokens + t, i);
      }
      if (!options_.magnitudes) continue;
      for (int i = 0; i < f; ++i) r.magnitudes.push_back(std::abs(neurons[i]));
    }
    r.tokens += s.tokens;
  }

  std::vector<LayerRecording> Take() { return std::move(recordings_); }

 private:
  const model::ModelConfig& config_;
  const RecordOptions& options_;
  std::vector<LayerRecording> recordings_;
};

}  // namespace

Status CheckTrueZeros(const load::LoadedModel& model) {
  RETURN_IF_ERROR(model::RequireDense(model.config, "activations").Annotate(model.path));
  RETURN_IF_ERROR(model::RequireNetworks(model.config, "activations").Annotate(model.path));
  if (model::HasTrueZeros(model.config.hidden_act)) return OkStatus();
  return base::FailedPrecondition(
      model.path, ": the activation ", model::ActivationName(model.config.hidden_act),
      " is never exactly zero, so every neuron is active for every token and there is nothing to "
      "predict; this needs a model with relu, fatrelu, drelu or relu2 (--activation, if the file "
      "does not say that it is one)");
}

Status RunWindows(const load::LoadedModel& model, std::span<const Window> windows, ffn::FfnTap& tap,
                  const std::function<void()>& begin_window,
                  const std::function<void(double)>& on_progress, nn::ProductTap* products) {
  std::size_t longest = 1;
  for (const Window& window : windows) longest = std::max(longest, window.size());
  const int context = static_cast<int>(longest);
  const auto transformer = model.MakeTransformer(std::min(kChunk, context), context);
  ASSIGN_OR_RETURN(const auto cache, model.MakeCache(context));
  transformer->ffn().SetTap(&tap);
  transformer->SetTap(products);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (begin_window) begin_window();
    cache->Clear();
    const std::span<const int> window = windows[i];
    for (std::size_t at = 0; at < window.size(); at += kChunk) {
      const std::size_t count = std::min<std::size_t>(kChunk, window.size() - at);
      RETURN_IF_ERROR(
          transformer->Forward(window.subspan(at, count), *cache, exec::Transformer::Logits::kNone)
              .status());
    }
    if (on_progress) on_progress(base::Ratio(i + 1, windows.size()));
  }
  return OkStatus();
}

std::size_t RecordingBytes(const model::ModelConfig& config, int tokens,
                           const RecordOptions& options) {
  const std::size_t f = config.intermediate_size;
  const std::size_t per_token =
      config.hidden_size * sizeof(float) + f / 8 + (options.magnitudes ? f * sizeof(float) : 0);
  return tokens * per_token;
}

int LayersAtOnce(const model::ModelConfig& config, int tokens, const RecordOptions& options,
                 std::size_t memory_bytes) {
  const std::size_t fit =
      memory_bytes / std::max<std::size_t>(1, RecordingBytes(config, tokens, options));
  return static_cast<int>(
      std::clamp<std::size_t>(fit, 1, static_cast<std::size_t>(config.num_hidden_layers)));
}

Result<std::vector<LayerRecording>> RecordLayers(const load::LoadedModel& model,
                                                 std::span<const Window> windows,
                                                 std::span<const int> layers,
                                                 const RecordOptions& options,
                                                 const std::function<void(double)>& on_progress) {
  int tokens = 0;
  for (const Window& window : windows) tokens += base::IntSize(window);
  Recorder recorder(model.config, layers, tokens, options);
  RETURN_IF_ERROR(RunWindows(model, windows, recorder, {}, on_progress));
  return recorder.Take();
}

}  // namespace thermocline::tools
