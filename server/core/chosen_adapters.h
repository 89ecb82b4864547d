// The LoRA adapters of a request, by the model that it names or by number.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace thermocline::server {

// {"id": 0, "scale": 0.5}, as llama-server's clients choose adapters.
struct ChosenAdapter {
  int id = 0;
  float scale = 1;
};

// Request::adapter_scales: of those in `chosen`, the others 0; else, if `model` is an adapter's
// name, of that one alone; else nullopt, as loaded. InvalidArgument, for the field lora: there is
// no such adapter, or it is chosen twice.
Result<std::optional<std::vector<float>>> AdapterScalesOf(
    const Engine& engine, const std::string& model,
    const std::optional<std::vector<ChosenAdapter>>& chosen);

}  // namespace thermocline::server
