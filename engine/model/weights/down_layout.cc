#include "engine/model/weights/down_layout.h"

#include <vector>

#include "engine/base/index.h"
#include "engine/model/weights/turn_matrix.h"

namespace thermocline::model {
Status CanTurnDown(const LayerWeights& layer) {
  const kernels::PackedMatrix& down = layer.down.weight;
  if (layer.down_rows.rows > 0) return base::FailedPrecondition("it is neuron-major");
  if (down.data == nullptr) return base::FailedPrecondition("it is not in memory as a whole");
  const kernels::DTypeTraits& traits = kernels::Traits(down.type);
  if (!kernels::CanSumRows(down.type) || down.rows % traits.block_size != 0)
    return base::FailedPrecondition(
        "rows of ", down.rows, " weights of type ", traits.name,
        " cannot be added up; `thermocline convert --down rows` makes them q8_0 or f16");
  return OkStatus();
}

bool TurnsDownExactly(const LayerWeights& layer) {
  return !kernels::Traits(layer.down.weight.type).quantized;
}

void TurnDown(LayerWeights& layer, base::WorkerPool& pool) {
  CHECK(CanTurnDown(layer).ok());
  const kernels::PackedMatrix down = layer.down.weight;
  std::vector<float> values(base::Area(down.rows, down.cols));
  TurnMatrix(down, 0, down.rows, pool, values);
  layer.down_rows = {.type = down.type, .rows = down.cols, .cols = down.rows, .data = down.data};
  PackTurned(layer.down_rows, values, pool);
  layer.down.weight = {};
}

std::size_t TurnDownBytes(const LayerWeights& layer) {
  const kernels::PackedMatrix& down = layer.down.weight;
  return base::Area(down.rows, down.cols) * sizeof(float);
}

}  // namespace thermocline::model
