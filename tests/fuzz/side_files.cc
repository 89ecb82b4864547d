// Fuzzes files beside a model: side-car, bundle, placement, trace, importance matrix, list of keys,
// by the first byte. Checksums are corrected, since they would reject most mutations.
#include <cstring>

#include "engine/base/hash.h"
#include "engine/base/json.h"
#include "engine/model/gguf/importance.h"
#include "engine/placement/placement_file.h"
#include "engine/predictor/side_car.h"
#include "engine/store/bundle_format.h"
#include "engine/store/bundle_layout.h"
#include "engine/store/trace.h"
#include "server/core/api_keys.h"
#include "tests/fuzz/input.h"

using namespace thermocline;  // NOLINT: a target is a file of its own

namespace {

// The model identity that the file claims, so that the check for it passes.
std::string ValueOf(std::string_view bytes, std::string_view key) {
  std::size_t at = bytes.find(key);
  if (at == std::string_view::npos) return "";
  at = bytes.find(':', at);
  const std::size_t begin = bytes.find('"', at), end = bytes.find('"', begin + 1);
  if (at == std::string_view::npos || end == std::string_view::npos) return "";
  return std::string(bytes.substr(begin + 1, end - begin - 1));
}

// Writes the checksum of the bytes before `end` to that place.
void Seal(std::string& bytes, std::size_t end) {
  base::Hasher hasher;
  hasher.Add(std::string_view(bytes).substr(0, end));
  const base::Hash128 digest = hasher.Digest();
  std::memcpy(&bytes[end], &digest.low, sizeof(digest.low));
  std::memcpy(&bytes[end + sizeof(digest.low)], &digest.high, sizeof(digest.high));
}

std::string SealedSideCar(std::string_view bytes) {
  std::string out(bytes);
  if (out.size() >= sizeof(base::Hash128)) Seal(out, out.size() - sizeof(base::Hash128));
  return out;
}

std::string SealedBundle(std::string_view bytes) {
  std::string out(bytes);
  store::BundlePrefix prefix;
  if (out.size() < sizeof(prefix)) return out;
  std::memcpy(&prefix, out.data(), sizeof(prefix));
  if (prefix.data_offset >= sizeof(prefix) + sizeof(store::BundleChecksum) &&
      prefix.data_offset <= out.size())
    Seal(out, prefix.data_offset - sizeof(store::BundleChecksum));
  return out;
}

std::string SealedPlacement(std::string_view bytes) {
  const auto parsed = base::ParseJson(bytes);
  if (!parsed.ok() || !parsed->is_object()) return std::string(bytes);
  base::Json whole{base::Json::Object()};
  for (const auto& [key, value] : parsed->as_object())
    if (key != "checksum") whole.object().emplace_back(key, value);
  base::Hasher hasher;
  hasher.Add(whole.Dump());
  whole.Set("checksum", hasher.Digest().Hex());
  return whole.Dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes = fuzz::TextOf(data + 1, size - 1);
  if (data[0] % 6 == 5) {
    (void)server::ApiKeys::Parse(bytes, "keys");
    return 0;
  }
  const int kind = data[0] % 6;
  const fuzz::InputFile file(kind == 0   ? SealedSideCar(bytes)
                             : kind == 1 ? SealedBundle(bytes)
                             : kind == 2 ? SealedPlacement(bytes)
                                         : std::string(bytes));
  const std::string hash = ValueOf(bytes, "model_hash");
  switch (kind) {
    case 0:
      (void)predictor::ReadSideCar(file.path(), {.model_hash = hash,
                                                 .hidden_size = 64,
                                                 .intermediate_size = 128,
                                                 .num_hidden_layers = 2});
      break;
    case 1:
      (void)store::ReadBundleIndex(file.path(), {.model_hash = hash,
                                                 .hidden_size = 64,
                                                 .intermediate_size = 128,
                                                 .num_hidden_layers = 2});
      break;
    case 2:
      (void)placement::ReadPlacement(file.path(), {.model_hash = hash,
                                                   .machine_key = ValueOf(bytes, "machine_key"),
                                                   .num_hidden_layers = 2,
                                                   .intermediate_size = 128});
      break;
    case 3:
      (void)store::ReadTrace(file.path());
      break;
    default:
      (void)model::Importance::Read(file.path());
  }
  return 0;
}
