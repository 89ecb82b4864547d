// The experts of a hot side, and the addresses of their matrices.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/model/weights/weights.h"
#include "engine/store/neuron_store.h"

namespace thermocline::ffn {

// The addresses of an expert's matrices.
struct ExpertPlace {
  const std::uint8_t *gate = nullptr, *up = nullptr, *down = nullptr;
};

// Const after construction. The host keeps all experts, in memory or on flash: the hot side has
// copies, or uses the same bytes.
class HotExperts {
 public:
  struct Params {
    const model::ModelConfig& config;
    const model::Weights& weights;
    store::NeuronStore* flash;          // null: all experts are in memory
    std::vector<std::vector<int>> hot;  // [L] ascending
  };
  explicit HotExperts(Params params);

  bool Has(int layer, int expert) const { return has_[layer * experts_ + expert] != 0; }
  const std::vector<std::vector<int>>& ids() const { return p_.hot; }
  // Bytes of an expert's matrices in a layer; 0 if the layer is dense.
  std::size_t bytes_each(int layer) const;
  std::size_t bytes() const;  // of all hot ones

  // Calls visit(layer, expert, place) for each hot expert, which is in memory during the call.
  // Errors of `visit` and of the flash tier.
  using Visit = std::function<Status(int layer, int expert, const ExpertPlace& place)>;
  Status ForEach(const Visit& visit) const;
  // Fixes the address of each hot expert for the lifetime of this object: experts on flash are
  // copied to a separate block of memory. ResourceExhausted: no memory. Called once.
  Status FixAddresses();
  // Requires: FixAddresses, Has.
  const ExpertPlace& Of(int layer, int expert) const { return places_[layer * experts_ + expert]; }
  std::size_t held_bytes() const { return memory_.size(); }

 private:
  const Params p_;
  const std::size_t experts_;
  std::vector<std::uint8_t> has_;    // [L, E]
  std::vector<ExpertPlace> places_;  // [L, E] after FixAddresses
  base::HugeBuffer memory_;
};

}  // namespace thermocline::ffn
