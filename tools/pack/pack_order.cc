#include "tools/pack/pack_order.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>

namespace thermocline::tools {
namespace {

using offline::NeuronOrder;

std::span<const std::uint32_t> ColdOf(const NeuronOrder& order) {
  return std::span(order.neurons).subspan(order.hot);
}

// A shuffle that is the same on every platform; std::shuffle is not.
std::vector<std::uint32_t> Shuffled(std::span<const std::uint32_t> neurons) {
  std::vector<std::uint32_t> out(neurons.begin(), neurons.end());
  std::mt19937 random(1);
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[random() % i]);
  return out;
}

std::vector<std::uint32_t> FileOrder(int neurons) {
  std::vector<std::uint32_t> order(neurons);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

PackOrder OrderFromActive(const ActiveLayers& layers, OrderKind kind, double hot,
                          base::WorkerPool& pool) {
  const int tokens = layers[0].tokens(), train = std::max(1, tokens - tokens / 5);
  PackOrder out;
  const bool linked = kind == OrderKind::kCoactivation;
  out.description = StrCat(linked ? "coactivation" : "frequency", " over ", train,
                           " tokens, hot above ", hot, " of them");
  out.tokens = tokens;
  out.held_out = tokens - train;
  for (const offline::ActiveColumns& active : layers) {
    const offline::ActiveColumns seen = active.First(train);
    const NeuronOrder by_count = offline::OrderByFrequency(seen.Counts(), train, hot);
    const NeuronOrder by_path = offline::OrderByCoactivation(seen, hot, pool);
    const auto runs = [&](std::span<const std::uint32_t> order) {
      return CountRuns(active, order, train, tokens).mean();
    };
    out.runs.push_back({.hot = by_count.hot,
                        .coactivation = runs(ColdOf(by_path)),
                        .frequency = runs(ColdOf(by_count)),
                        .random = runs(Shuffled(ColdOf(by_count)))});
    store::BundleIndex::Layer& layer = out.layers.emplace_back();
    layer.position = kind == OrderKind::kNone ? FileOrder(active.neurons())
                                              : PositionsOf(linked ? by_path : by_count);
    layer.activations = active.Counts();
  }
  if (kind == OrderKind::kNone) out.description = "as in the model";
  return out;
}

PackOrder OrderFromCounts(const predictor::SideCar& side_car, double hot) {
  PackOrder out = OrderOfModel(side_car.num_hidden_layers, side_car.intermediate_size);
  out.description =
      StrCat("frequency by the side-car's profile of ", side_car.profiled_tokens, " tokens");
  out.tokens = side_car.profiled_tokens;
  for (std::size_t i = 0; i < out.layers.size(); ++i) {
    const auto& counts = side_car.layers[i].activations;
    out.layers[i].activations = counts;
    if (counts.empty()) out.layers[i].activations.resize(out.layers[i].position.size());
    out.layers[i].position =
        PositionsOf(offline::OrderByFrequency(out.layers[i].activations, out.tokens, hot));
  }
  return out;
}

PackOrder OrderOfModel(int layers, int neurons) {
  PackOrder out{.description = "as in the model", .layers = {}, .runs = {}};
  out.layers.resize(layers);
  for (auto& layer : out.layers) layer.position = FileOrder(neurons);
  return out;
}

Json RunsJson(const PackOrder& order) {
  Json::Array layers;
  for (std::size_t i = 0; i < order.runs.size(); ++i) {
    const LayerRuns& r = order.runs[i];
    layers.push_back(Json::Object{{"layer", i},
                                  {"hot", r.hot},
                                  {"coactivation", r.coactivation},
                                  {"frequency", r.frequency},
                                  {"random", r.random}});
  }
  return layers;
}

void PrintRuns(const PackOrder& order) {
  if (order.runs.empty() || order.held_out == 0) return;
  std::printf("layer    hot   run by coactivation   by frequency   at random\n");
  for (std::size_t i = 0; i < order.runs.size(); ++i) {
    const LayerRuns& r = order.runs[i];
    std::printf("%5zu  %5d  %20.2f   %12.2f   %9.2f\n", i, r.hot, r.coactivation, r.frequency,
                r.random);
  }
  std::printf(
      "hot: neurons that come first, by frequency; run: neighbours in the file that a token needs "
      "at once,\nmean over the other neurons and %lld tokens that the order was not made from\n",
      static_cast<long long>(order.held_out));
}

}  // namespace thermocline::tools
