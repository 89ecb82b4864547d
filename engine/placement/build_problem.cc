#include "engine/placement/build_problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/ratio.h"
#include "engine/model/weights/weights.h"
#include "engine/placement/numbers.h"

namespace thermocline::placement {
namespace {

// The memory of the CPU's program and of the GPU's context, beside the model.
constexpr std::int64_t kProgramBytes = std::int64_t{192} << 20;
constexpr std::int64_t kHotReserveBytes = std::int64_t{512} << 20;
constexpr int kTokensMax = 64;  // T of one call
constexpr std::int64_t kThresholdBytes = 4;

// Bytes by part of each layer, in their layout in memory.
struct Sizes {
  std::int64_t shared = 0;
  std::vector<std::size_t> norms, attention, deciding, rest;  // [L]; with the norms in all of them
};

Result<Sizes> Measure(const model::ModelFile& file) {
  const auto measure = [&](bool shared, model::LayerParts parts) {
    return model::MeasureWeights(file,
                                 {.parts = [=](int) { return parts; }, .shared = {shared, shared}});
  };
  ASSIGN_OR_RETURN(auto none, measure(false, {false, false, false, false}));
  ASSIGN_OR_RETURN(auto shared, measure(true, {false, false, false, false}));
  ASSIGN_OR_RETURN(auto attention, measure(false, {true, false, false, true}));
  ASSIGN_OR_RETURN(auto deciding, measure(false, {false, true, false, false}));
  ASSIGN_OR_RETURN(auto rest, measure(false, {false, false, true, false}));
  return Sizes{static_cast<std::int64_t>(shared.bytes - none.bytes), std::move(none.images),
               std::move(attention.images), std::move(deciding.images), std::move(rest.images)};
}

std::int64_t TensorBytes(const model::ModelFile& file, const std::string& name) {
  const model::TensorInfo* tensor = file.Find(name);
  return tensor == nullptr ? 0 : static_cast<std::int64_t>(tensor->bytes);
}

std::int64_t Cached(const model::ModelConfig& c, int layer, const BuildOptions& o) {
  std::int64_t tokens = o.context_length;
  if (c.WindowOf(layer) > 0) tokens = std::min<std::int64_t>(tokens, c.sliding_window);
  const auto elements = static_cast<double>(2 * tokens * c.HeadsOf(layer).kv());
  return static_cast<std::int64_t>(elements * o.kv_element_bytes);
}

std::int64_t WorkspaceBytes(const model::ModelConfig& c) {
  const std::int64_t row = 4 * std::int64_t{c.hidden_size} + 2 * std::int64_t{c.intermediate_size} +
                           3 * std::int64_t{c.num_attention_heads} * c.head_dim;
  return 8 * kTokensMax * row + 8 * std::int64_t{c.vocab_size};
}

Result<std::vector<double>> Frequencies(std::span<const std::uint32_t> counts, std::int64_t tokens,
                                        int layer, std::int64_t neurons) {
  if (counts.size() != S(neurons) || tokens <= 0)
    return base::InvalidArgument("layer ", layer, ": activation counts of ", counts.size(),
                                 " neurons over ", tokens, " tokens; the model has ", neurons,
                                 " neurons. Profile it anew");
  std::vector<double> out;
  out.reserve(counts.size());
  for (const std::uint32_t count : counts) {
    if (count > tokens)
      return base::InvalidArgument("layer ", layer, ": a neuron was active for ", count, " of ",
                                   tokens, " tokens. Profile the model anew");
    out.push_back(base::Ratio(count, tokens));
  }
  std::sort(out.begin(), out.end(), std::greater<>());
  return out;
}

Result<LayerShape> BuildLayer(const model::ModelFile& file, const Sizes& sizes, int layer,
                              const BuildOptions& o) {
  const model::ModelConfig& c = file.config;
  const std::size_t l = S(layer);
  const std::int64_t f = c.units_per_layer();
  const auto of = [&](const std::vector<std::size_t>& images) {
    return static_cast<std::int64_t>(images[l] - sizes.norms[l]);
  };
  const auto each = [&](std::int64_t bytes) { return (bytes + f - 1) / f; };
  const std::string prefix = StrCat("blk.", layer, ".fc");
  const std::int64_t low_rank =
      TensorBytes(file, prefix + "1.weight") + TensorBytes(file, prefix + "2.weight");
  LayerShape out{.reading = c.experts.any() ? Reading::kChosen : o.readings[l],
                 .home_bytes = static_cast<std::int64_t>(sizes.norms[l]) +
                               std::max<std::int64_t>(0, of(sizes.attention) - low_rank),
                 .kv_bytes = Cached(c, layer, o),
                 .deciding_bytes = each(of(sizes.deciding)),
                 .rest_bytes = each(of(sizes.rest))};
  // In a mixture, a dense layer has nothing to place.
  if (c.experts.any() && !c.experts.InLayer(layer)) {
    out.frequency.assign(S(f), 0.0);
    return out;
  }
  if (out.reading == Reading::kPredicted) {
    out.overprediction = o.overprediction;
    out.predictor_bytes =
        o.predictor_bytes > 0 ? o.predictor_bytes : (c.hidden_size + 7) / 8 + kThresholdBytes;
  }
  if (o.activations.empty()) return out;
  ASSIGN_OR_RETURN(out.frequency, Frequencies(o.activations[l], o.profiled_tokens, layer, f));
  return out;
}

}  // namespace

Result<Problem> BuildProblem(const model::ModelFile& file, const Machine& machine,
                             const BuildOptions& o) {
  if (!file.has_weights)
    return base::InvalidArgument(file.path, ": the file holds a vocabulary, but no weights");
  const model::ModelConfig& c = file.config;
  const auto layers = S(c.num_hidden_layers);
  if (o.readings.size() != layers || (!o.activations.empty() && o.activations.size() != layers))
    return base::InvalidArgument(file.path, ": modes of ", o.readings.size(), " and counts of ",
                                 o.activations.size(), " layers for a model of ", layers);
  if (!(o.active > 0 && o.active <= 1 && o.zipf >= 0 && o.zipf <= 10))
    return base::InvalidArgument("an active share of ", o.active, " and a Zipf exponent of ",
                                 o.zipf, "; expected (0, 1] and [0, 10]");
  ASSIGN_OR_RETURN(const Sizes sizes, Measure(file));
  Problem out;
  out.machine = machine;
  out.batch = c.experts.any() ? 1 : o.batch;
  out.sync_bytes = 2 * 4 * std::int64_t{c.hidden_size};
  std::vector<double> assumed;
  if (o.activations.empty()) assumed = ZipfFrequencies(c.units_per_layer(), o.active, o.zipf);
  for (int l = 0; l < c.num_hidden_layers; ++l) {
    ASSIGN_OR_RETURN(LayerShape layer, BuildLayer(file, sizes, l, o));
    if (layer.frequency.empty()) layer.frequency = assumed;
    out.layers.push_back(std::move(layer));
  }
  const std::int64_t output =
      TensorBytes(file, c.tie_word_embeddings ? "token_embd.weight" : "output.weight");
  out.head_bytes = output + TensorBytes(file, "output_norm.weight");
  // A tied head is the embedding, which the cold side holds only once.
  const std::int64_t embeddings = std::max<std::int64_t>(0, sizes.shared - out.head_bytes);
  out.memory_fixed_bytes = kProgramBytes + embeddings + WorkspaceBytes(c);
  out.head_with_homes = true;  // the forward pass goes from the device to the CPU once
  // A hot side that cannot be a home is part of this process: its buffers are counted there.
  if (machine.hot_homes)
    out.hot_fixed_bytes = WorkspaceBytes(c) + (machine.unified ? 0 : kHotReserveBytes);
  return out;
}

std::vector<double> ZipfFrequencies(std::int64_t n, double active, double zipf) {
  std::vector<double> shape(S(n)), out(S(n));
  for (std::size_t i = 0; i < shape.size(); ++i)
    shape[i] = std::pow(static_cast<double>(i + 1), -zipf);
  double low = 0, high = 1 / shape.back();
  for (int step = 0; step < 100; ++step) {
    const double scale = (low + high) / 2;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::min(1.0, scale * shape[i]);
    const double mean = std::accumulate(out.begin(), out.end(), 0.0) / static_cast<double>(n);
    (mean < active ? low : high) = scale;
  }
  return out;
}

std::vector<std::int32_t> ByFrequency(std::span<const std::uint32_t> counts) {
  std::vector<std::int32_t> ids(counts.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::int32_t a, std::int32_t b) { return counts[a] > counts[b]; });
  return ids;
}

}  // namespace thermocline::placement
