// The models and names that clients have added to server.models_dir: a file in that folder.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::server {

struct AddedModels {
  // A fetched model, served under `name`.
  struct Model {
    std::string name, path;
    bool fetched = false;  // by a client: other files are not deleted with the name
  };
  // A further name of a served model.
  struct Alias {
    std::string alias, model;
  };
  std::vector<Model> models;
  std::vector<Alias> aliases;

  // The model or alias of that name (PlainName); nullptr = none.
  const Model* FindModel(const std::string& name) const;
  const Alias* FindAlias(const std::string& name) const;
};

// True for 1 to kNameBytesMax letters, digits and marks that need no quotes, but not "*".
inline constexpr std::size_t kNameBytesMax = 128;
bool IsAddableName(std::string_view name);

// The file in `folder`; nothing if there is none. InvalidArgument: it is malformed, or a name is
// not addable.
Result<AddedModels> ReadAddedModels(const std::string& folder);

// Reads, changes and writes the file, unless `change` returns an error. One process and thread at a
// time.
Status ChangeAddedModels(const std::string& folder,
                         const std::function<Status(AddedModels&)>& change);

}  // namespace thermocline::server
