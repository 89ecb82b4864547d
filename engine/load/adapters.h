// The LoRA adapters of a loaded model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/api/adapter_choice.h"
#include "engine/model/adapter.h"
#include "engine/model/weights/weights.h"
#include "engine/nn/low_rank_updates.h"

namespace thermocline::load {

struct LoadedAdapter {
  std::string name, path, hash;
  float scale = 1;  // as AdapterChoice
};

// Const after loading.
struct Adapters {
  std::vector<LoadedAdapter> list;
  nn::UpdateTable updates;
  base::HugeBuffer memory;  // of the factors

  // The factors [list.size()] of a request that names none; empty if there are no adapters.
  std::vector<float> defaults() const;
};

// Reads the files. Errors as model::OpenAdapter.
Result<std::vector<model::Adapter>> OpenAdapters(const std::vector<AdapterChoice>& choices,
                                                 const model::ModelConfig& config);
// The bytes of all packed factors.
std::size_t BytesOf(const std::vector<model::Adapter>& adapters);
// Packs the factors. InvalidArgument or Unimplemented: a matrix that the model lacks, that has
// another shape, or that adapters cannot change.
Result<std::unique_ptr<Adapters>> PackAdapters(const std::vector<AdapterChoice>& choices,
                                               std::vector<model::Adapter> read,
                                               const model::Weights& weights);

}  // namespace thermocline::load
