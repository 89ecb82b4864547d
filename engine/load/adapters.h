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

// Adapters that were read, and are not packed yet.
struct OpenedAdapters {
  std::vector<AdapterChoice> choices;
  std::vector<model::Adapter> read;  // one for each choice

  std::size_t bytes() const;  // of all packed factors
};

// Reads the files that ModelOptions::lora names. Errors as ParseAdapters and model::OpenAdapter.
Result<OpenedAdapters> OpenAdapters(const std::string& lora, const model::ModelConfig& config);
// Packs the factors; nullptr: there are none. InvalidArgument or Unimplemented: a matrix that the
// model lacks, that has another shape, or that adapters cannot change.
Result<std::unique_ptr<Adapters>> PackAdapters(OpenedAdapters opened,
                                               const model::Weights& weights);

}  // namespace thermocline::load
