// The placement file: the tier of each neuron of a model, on one machine.
//
// One JSON object: "version" (1), "model_hash", "machine_key", "profile" (of the activation
// counts), "hot_bytes" and "memory_bytes" (the budgets), "intermediate_size", "head", "layers": [L
// of {"home", "hot": hexadecimal bits, neuron i is bit i % 4 of digit i / 4, "flash": the same}],
// "checksum" (XXH3-128 of the object without it, on one line). Neurons that are neither hot nor on
// flash are in RAM.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/placement/placement.h"

namespace thermocline::placement {

enum class Tier : std::uint8_t { kMemory, kHot, kFlash };

struct PlacementFile {
  std::string model_hash;   // model::Fingerprint
  std::string machine_key;  // Machine::key
  std::string profile;      // digest of the activation counts, or the assumption without them
  std::int64_t hot_bytes = 0, memory_bytes = 0;  // budgets
  bool head_hot = false;
  struct Layer {
    bool home_hot = false;
    std::vector<Tier> tiers;  // [F], by neuron
  };
  std::vector<Layer> layers;  // [L]
};

// The model and the machine that a file must match.
struct PlacementIdentity {
  std::string model_hash, machine_key;
  int num_hidden_layers = 0;  // L
  int intermediate_size = 0;  // F
};

// The tiers of a placement. `order`: the neurons of each layer, most frequent first, [L][F].
std::vector<PlacementFile::Layer> TiersOf(const Placement& placement,
                                          const std::vector<std::vector<std::int32_t>>& order);

Status WritePlacement(const std::string& path, const PlacementFile& file);

// NotFound; DataLoss: not a JSON object, or a wrong checksum; Unimplemented: another version;
// FailedPrecondition: another model or machine; InvalidArgument: other shapes. All messages except
// NotFound's advise planning again.
Result<PlacementFile> ReadPlacement(const std::string& path, const PlacementIdentity& expected);

}  // namespace thermocline::placement
