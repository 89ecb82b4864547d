// The configuration keys: those of model options (engine/api/option_table.h) and the daemon's own,
// each with its member of ServerConfig and allowed values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/api/option_value.h"
#include "engine/api/sampling_table.h"
#include "server/core/server_config.h"

namespace thermocline::server {

struct BordersKey {  // "0.1, 0.2, 0.5"; empty = the defaults
  std::vector<double>* target;
};
// A number, or "model" for the recommendation of the model's makers, or kCommonSampling without
// one.
struct ModelsOwnKey {
  const SamplingField* field;  // from the sampling table
  SamplingDefaults* target;
};
// A key is reloadable if SIGHUP applies its new value.
constexpr bool kReloadable = true;
struct Key {
  std::string name;
  std::variant<OptionValue, BordersKey, ModelsOwnKey> kind;
  bool reloadable = false;
};

// Every key, each with a pointer into `config`.
std::vector<Key> KeysOf(ServerConfig& config);

// Sets `name` to the value of `text`. InvalidArgument: a bad value, with the expected one; or, for
// kNotFound, an unknown name, with the nearest known one.
Status SetKey(const std::vector<Key>& keys, const std::string& name, const std::string& text);

// As SetKey, for the items of a list. InvalidArgument also if the key has a single value.
Status SetKeyList(const std::vector<Key>& keys, const std::string& name,
                  const std::vector<std::string>& items);
// True if a key's value is a comma-separated list.
bool TakesList(const std::vector<Key>& keys, std::string_view name);

// Every key, dotted ("server.port"), in order.
std::vector<std::string> ConfigKeys();

// Copies the values of reloadable keys from `fresh` to `running`. Returns the names of other keys
// that differ.
std::vector<std::string> TakeReloadable(const ServerConfig& fresh, ServerConfig& running);

}  // namespace thermocline::server
