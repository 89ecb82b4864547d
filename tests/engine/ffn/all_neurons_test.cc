// Whole layers have the h of the scalar definition, with and without members; a tap receives it.
#include "engine/ffn/all_neurons.h"

#include <gtest/gtest.h>

#include "tests/engine/ffn/small_network.h"

namespace thermocline::ffn {
namespace {

double Deciding(const SmallNetwork::Layer& layer, int id, const float* x) {
  return (layer.gate.rows > 0 ? layer.gate : layer.up).Times(id, x);
}

double H(const SmallNetwork::Layer& layer, int id, const float* x) {
  return Relu(Deciding(layer, id, x)) * (layer.gate.rows > 0 ? layer.up.Times(id, x) : 1);
}

TEST(AllNeurons, ComputesEveryMember) {
  const auto members = SomeMembers(2);
  for (const auto* of : {&members, static_cast<decltype(&members)>(nullptr)}) {
    for (const bool gated : {true, false}) {
      SmallNetwork network({.gated = gated, .bias = true, .layers = 2, .members = of});
      AllNeurons all(network.context(), 20);
      nn::ActivationBuffer h;
      h.Resize(20, kNeurons);
      for (const int tokens : {1, 20}) {
        const SmallInput input(tokens);
        for (int layer = 0; layer < 2; ++layer) {
          const FoundNeurons found = all.Compute(layer, input.get(), h);
          ASSERT_EQ(found.ids.size(), of == nullptr
                                          ? static_cast<std::size_t>(kNeurons)
                                          : members[static_cast<std::size_t>(layer)].size());
          EXPECT_EQ(found.h, h.x.data());
          for (int t = 0; t < tokens; ++t) {
            for (std::size_t k = 0; k < found.ids.size(); ++k)
              ASSERT_NEAR(
                  static_cast<double>(found.h[static_cast<std::size_t>(t * found.stride) + k]),
                  H(network.layers[static_cast<std::size_t>(layer)], found.ids[k], input.x(t)),
                  1e-3)
                  << found.ids[k];
          }
        }
      }
    }
  }
}

class Recorder final : public FfnTap {
 public:
  void OnLayer(const FfnSample& s) override {
    sample = s;
    const auto values = static_cast<std::size_t>(s.tokens * kNeurons);
    gate.assign(s.gate, s.gate + values);
    neurons.assign(s.neurons, s.neurons + values);
  }
  FfnSample sample;
  std::vector<float> gate, neurons;
};

TEST(AllNeurons, ShowsATapGatesAndNeurons) {
  SmallNetwork network({.layers = 2});
  AllNeurons all(network.context(), 2);
  Recorder tap;
  all.SetTap(&tap);
  EXPECT_TRUE(all.tapped());
  nn::ActivationBuffer h;
  h.Resize(2, kNeurons);
  const SmallInput input(2);
  all.Compute(1, input.get(), h);
  EXPECT_EQ(tap.sample.layer, 1);
  EXPECT_EQ(tap.sample.tokens, 2);
  EXPECT_EQ(tap.sample.residual, input.get().residual);
  EXPECT_EQ(tap.sample.hidden, input.x(0));
  for (int t = 0; t < 2; ++t) {
    for (int id = 0; id < kNeurons; ++id) {
      const auto at = static_cast<std::size_t>(t * kNeurons + id);
      ASSERT_NEAR(static_cast<double>(tap.gate[at]), Deciding(network.layers[1], id, input.x(t)),
                  1e-4);
      ASSERT_NEAR(static_cast<double>(tap.neurons[at]), H(network.layers[1], id, input.x(t)), 1e-3);
    }
  }
  all.SetTap(nullptr);
  tap.sample.layer = 5;
  all.Compute(0, input.get(), h);
  EXPECT_EQ(tap.sample.layer, 5);
}

}  // namespace
}  // namespace thermocline::ffn
