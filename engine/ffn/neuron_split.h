// Splits a model's neurons between a hot and a cold side: the owner of each neuron, and the
// addresses of its rows.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/model/weights/weights.h"
#include "engine/predictor/predictors.h"
#include "engine/store/neuron_store.h"

namespace thermocline::ffn {

using NeuronIds = std::vector<std::vector<int>>;  // [L] ascending

// Const after construction.
class NeuronSplit {
 public:
  struct Params {
    int intermediate_size;
    model::Weights& weights;    // gate and up in rows
    store::NeuronStore* flash;  // null: all rows are in memory
    bool deciding_held;         // with a flash tier: the deciding rows are in memory
    NeuronIds hot;
  };
  // Moves the hot rows to a separate block on locked huge pages, and frees their old memory.
  // FailedPrecondition if the model has no down rows; ResourceExhausted: no memory; errors of the
  // flash tier.
  static Result<std::unique_ptr<NeuronSplit>> Move(Params params);
  // Hands the hot rows over: `visit` is called once for each layer with hot neurons, with all its
  // rows, and then the memory of the hot ones is freed. Errors of `visit`, and as Move. After an
  // error the model cannot be used.
  using Visit = std::function<Status(int layer, const model::LayerWeights& rows)>;
  static Result<std::unique_ptr<NeuronSplit>> Remove(Params params, const Visit& visit);
  // Leaves all rows in place: for measurements.
  static Result<std::unique_ptr<NeuronSplit>> InPlace(Params params);

  const NeuronIds& hot() const { return hot_; }
  const NeuronIds& cold() const { return cold_; }
  // The weights for the hot side: rows of hot neurons only.
  const model::Weights& hot_weights() const { return hot_weights_; }
  std::size_t hot_bytes() const { return memory_.size(); }
  bool locked() const { return locked_; }

 private:
  using Where = std::vector<const std::uint8_t*>;  // [F]

  explicit NeuronSplit(Params params);
  // Bytes of one of the layer's neurons in the block.
  std::size_t SlotBytes(std::size_t layer) const;
  void Reserve();
  // Calls body() while all rows of the layer are in memory.
  template <typename Body>
  Status WithRows(std::size_t layer, const Body& body);
  Status MoveLayer(std::size_t layer, std::uint8_t* block);
  // Moves the cold rows of all matrices of a layer to their beginning.
  void CompactLayer(std::size_t layer);
  // Moves the cold rows of a matrix to its beginning.
  void Compact(const std::vector<int>& cold, std::uint8_t* rows, std::size_t row_bytes,
               Where& where);

  const int intermediate_size_;
  model::Weights& weights_;
  store::NeuronStore* const flash_;
  const bool deciding_held_;
  NeuronIds hot_, cold_;
  model::Weights hot_weights_;
  base::HugeBuffer memory_;
  bool locked_ = false;
  std::vector<Where> hot_where_;                        // [L]
  std::vector<Where> cold_gate_, cold_up_, cold_down_;  // [L]; empty if flash has them
};

}  // namespace thermocline::ffn
