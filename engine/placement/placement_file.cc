#include "engine/placement/placement_file.h"

#include <algorithm>
#include <string_view>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/base/json_text.h"

namespace thermocline::placement {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr const char* kAnew = "; plan anew: thermocline plan MODEL --out FILE";

std::string Bits(const std::vector<Tier>& tiers, Tier tier) {
  std::string out;
  for (std::size_t i = 0; i < tiers.size(); i += 4) {
    unsigned digit = 0;
    for (std::size_t j = i; j < std::min(tiers.size(), i + 4); ++j)
      digit |= (tiers[j] == tier ? 1U : 0U) << (j - i);
    out.push_back("0123456789abcdef"[digit]);
  }
  return out;
}

// Returns false if `digits` is not hexadecimal or does not match the number of neurons.
bool SetBits(const std::string& digits, Tier tier, std::vector<Tier>& tiers) {
  if (digits.size() != (tiers.size() + 3) / 4) return false;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(digits[i]);
    if (digit == std::string_view::npos) return false;
    for (std::size_t j = 0; j < 4; ++j) {
      if ((digit >> j & 1) == 0) continue;
      const std::size_t neuron = 4 * i + j;
      if (neuron >= tiers.size() || tiers[neuron] != Tier::kMemory) return false;
      tiers[neuron] = tier;
    }
  }
  return true;
}

std::string Checksum(const Json& json) {
  base::Hasher hasher;
  hasher.Add(json.Dump());
  return hasher.Digest().Hex();
}

const char* SideName(bool hot) { return hot ? "hot" : "cold"; }

Json ToJson(const PlacementFile& file) {
  Json::Array layers;
  for (const PlacementFile::Layer& layer : file.layers)
    layers.push_back(Json::Object{{"home", SideName(layer.home_hot)},
                                  {"hot", Bits(layer.tiers, Tier::kHot)},
                                  {"flash", Bits(layer.tiers, Tier::kFlash)}});
  Json json =
      Json::Object{{"version", kVersion},
                   {"model_hash", file.model_hash},
                   {"machine_key", file.machine_key},
                   {"profile", file.profile},
                   {"hot_bytes", file.hot_bytes},
                   {"memory_bytes", file.memory_bytes},
                   {"intermediate_size", file.layers.empty() ? 0 : file.layers[0].tiers.size()},
                   {"head", SideName(file.head_hot)},
                   {"layers", std::move(layers)}};
  json.Set("checksum", Checksum(json));
  return json;
}

std::int64_t Number(const Json& json, const char* name) {
  const Json* value = json.Find(name);
  return value != nullptr && value->is_int() ? value->as_int() : -1;
}

// The object, if its checksum is correct.
Result<Json> ReadWhole(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path));
  const auto parsed = base::ParseJson(text);
  if (!parsed.ok() || !parsed->is_object())
    return base::DataLoss(path, ": the placement file is damaged: it is no JSON object", kAnew);
  const std::int64_t version = Number(*parsed, "version");
  if (version != kVersion)
    return base::Unimplemented(path, ": the placement file has version ", version, ", expected ",
                               kVersion, kAnew);
  Json rest{Json::Object()};
  for (const auto& [key, value] : parsed->as_object()) {
    if (key != "checksum") rest.object().emplace_back(key, value);
  }
  if (Checksum(rest) != base::TextOf(*parsed, "checksum"))
    return base::DataLoss(path, ": the placement file is damaged: its checksum does not match",
                          kAnew);
  return rest;
}

Status CheckIdentity(const std::string& path, const Json& json, const PlacementIdentity& expected) {
  if (const std::string hash = base::TextOf(json, "model_hash"); hash != expected.model_hash)
    return base::FailedPrecondition(path, ": the placement is of the model ", hash, ", not of ",
                                    expected.model_hash, kAnew);
  if (const std::string key = base::TextOf(json, "machine_key"); key != expected.machine_key)
    return base::FailedPrecondition(path, ": the placement is of the machine '", key, "', not of '",
                                    expected.machine_key, "'", kAnew);
  return OkStatus();
}

}  // namespace

std::vector<PlacementFile::Layer> TiersOf(const Placement& placement,
                                          const std::vector<std::vector<std::int32_t>>& order) {
  CHECK_EQ(placement.layers.size(), order.size());
  std::vector<PlacementFile::Layer> out;
  for (std::size_t l = 0; l < order.size(); ++l) {
    const LayerPlacement& from = placement.layers[l];
    CHECK_EQ(static_cast<std::size_t>(from.hot + from.memory + from.flash), order[l].size());
    PlacementFile::Layer& layer = out.emplace_back();
    layer.home_hot = from.home_hot;
    layer.tiers.assign(order[l].size(), Tier::kMemory);
    for (std::size_t rank = 0; rank < order[l].size(); ++rank) {
      const std::int64_t at = rank;
      Tier& tier = layer.tiers[order[l][rank]];
      if (at < from.hot) tier = Tier::kHot;
      if (at >= from.hot + from.memory) tier = Tier::kFlash;
    }
  }
  return out;
}

Status WritePlacement(const std::string& path, const PlacementFile& file) {
  ASSIGN_OR_RETURN(const auto writer, base::FileWriter::Create(path));
  RETURN_IF_ERROR(writer->Append(ToJson(file).Dump(1) + "\n"));
  return writer->Commit();
}

Result<PlacementFile> ReadPlacement(const std::string& path, const PlacementIdentity& expected) {
  ASSIGN_OR_RETURN(const Json json, ReadWhole(path));
  RETURN_IF_ERROR(CheckIdentity(path, json, expected));
  const auto wrong = [&](const auto&... what) {
    return base::InvalidArgument(path, ": the placement file has ", what..., kAnew);
  };
  PlacementFile out{.model_hash = expected.model_hash,
                    .machine_key = expected.machine_key,
                    .profile = base::TextOf(json, "profile"),
                    .hot_bytes = Number(json, "hot_bytes"),
                    .memory_bytes = Number(json, "memory_bytes"),
                    .head_hot = base::TextOf(json, "head") == "hot",
                    .layers = {}};
  const Json* layers = json.Find("layers");
  const std::size_t count = layers != nullptr && layers->is_array() ? layers->as_array().size() : 0;
  if (count != static_cast<std::size_t>(expected.num_hidden_layers))
    return wrong(count, " layers, the model ", expected.num_hidden_layers);
  if (const std::int64_t f = Number(json, "intermediate_size"); f != expected.intermediate_size)
    return wrong(f, " neurons in a layer, the model ", expected.intermediate_size);
  for (std::size_t l = 0; l < count; ++l) {
    const Json& from = layers->as_array()[l];
    PlacementFile::Layer& layer = out.layers.emplace_back();
    layer.home_hot = base::TextOf(from, "home") == "hot";
    layer.tiers.assign(expected.intermediate_size, Tier::kMemory);
    if (!SetBits(base::TextOf(from, "hot"), Tier::kHot, layer.tiers) ||
        !SetBits(base::TextOf(from, "flash"), Tier::kFlash, layer.tiers))
      return wrong("bits of layer ", l, " that are not one for each neuron");
  }
  return out;
}

}  // namespace thermocline::placement
