// The models that a client may use.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace thermocline::server {

// `names` has names and aliases of models; if it is empty, the client may use all.
struct ModelRights {
  std::vector<std::string> names = {};

  bool all() const { return names.empty(); }
  // True if the model with these names and aliases may be used.
  bool Allow(const std::vector<std::string>& model) const {
    return all() || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
             return std::find(model.begin(), model.end(), name) != model.end();
           });
  }
  // True if `other` allows nothing more.
  bool Cover(const ModelRights& other) const {
    return all() ||
           (!other.all() && std::all_of(other.names.begin(), other.names.end(),
                                        [&](const std::string& name) { return Allow({name}); }));
  }
};

}  // namespace thermocline::server
