#include "server/daemon/config_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <sstream>

#include "engine/api/ffn_mode.h"
#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/log.h"
#include "engine/hub/find_model.h"
#include "engine/hub/scan.h"
#include "server/core/added_models.h"
#include "server/core/service.h"
#include "server/daemon/config_keys.h"
#include "server/daemon/yaml_text.h"

namespace thermocline::server {
namespace {

// Keys so far, each with its line. yaml-cpp accepts a key twice, and which one it keeps is
// undefined.
using Lines = std::map<std::string, int>;

Status AddKey(const YAML::Node& key, const std::string& name, Lines& lines) {
  const auto [found, fresh] = lines.emplace(name, key.Mark().line + 1);
  if (fresh) return OkStatus();
  return base::InvalidArgument("the key '", name, "' comes twice; it is in line ", found->second,
                               " already");
}

std::optional<std::vector<std::string>> ItemsOf(const YAML::Node& node) {
  if (!node.IsSequence()) return std::nullopt;
  std::vector<std::string> items;
  for (const auto& item : node) {
    if (!item.IsScalar()) return std::nullopt;
    items.push_back(item.Scalar());
  }
  return items;
}

// The error of a value that is a list or section, or of an unknown key.
Status ExpectedSingle(const std::vector<Key>& keys, const std::string& name, const char* what) {
  Status unknown = SetKey(keys, name, "");
  if (unknown.reason() == Reason::kNotFound) return unknown;
  return base::InvalidArgument(name, ": expected a single value, found a ", what);
}

// True if a value of --set is parsed as YAML: it is in quotes, in brackets or in braces. Others are
// taken literally; so is "[x].gguf", a file's name.
bool IsYaml(const std::string& text, bool takes_list) {
  if (text.empty()) return false;
  const char first = text.front(), last = text.back();
  return first == '"' || first == '\'' || (first == '[' && (takes_list || last == ']')) ||
         (first == '{' && last == '}');
}

Status SetOverride(const std::vector<Key>& keys, const std::string& name, const std::string& text) {
  const bool takes_list = TakesList(keys, name);
  if (!IsYaml(text, takes_list)) return SetKey(keys, name, text);
  try {
    // Several quoted texts are a list; yaml-cpp alone would read only the first.
    const bool braces = text.starts_with('{'), brackets = text.starts_with('[');
    const YAML::Node node = YAML::Load(braces || brackets ? text : "[" + text + "]");
    if (braces) return ExpectedSingle(keys, name, "section");
    const auto items = ItemsOf(node);
    if (items.has_value() && items->size() == 1 && !brackets)
      return SetKey(keys, name, items->front());
    if (items.has_value()) return SetKeyList(keys, name, *items);
  } catch (const YAML::Exception&) {
  }
  return base::InvalidArgument(
      name, ": '", text,
      takes_list ? "' is no list; write a, b or [a, \"b\"]" : "' is no single text in quotes");
}

constexpr std::string_view kModels = "models";

// Sets the keys of one section, a map of scalars and of lists of scalars.
Status ApplySection(const std::string& section_name, const YAML::Node& section,
                    const std::string& path, const std::vector<Key>& keys, Lines& lines) {
  const auto at = [&](const YAML::Node& node) { return StrCat(path, ":", node.Mark().line + 1); };
  for (const auto& entry : section) {
    const std::string name = section_name + "." + entry.first.Scalar();
    if (const Status once = AddKey(entry.first, name, lines); !once.ok())
      return once.Annotate(at(entry.first));
    if (const auto items = ItemsOf(entry.second); items.has_value()) {
      const Status set = SetKeyList(keys, name, *items);
      if (!set.ok()) return set.Annotate(at(entry.first));
      continue;
    }
    if (!entry.second.IsScalar()) {
      const char* what = entry.second.IsMap() ? "section" : entry.second.IsNull() ? "null" : "list";
      return ExpectedSingle(keys, name, what).Annotate(at(entry.first));
    }
    const Status set = SetKey(keys, name, entry.second.Scalar());
    if (!set.ok()) return set.Annotate(at(entry.first));
  }
  return OkStatus();
}

Status ApplyYaml(const YAML::Node& root, const std::string& path, const std::vector<Key>& keys) {
  const auto at = [&](const YAML::Node& node) { return StrCat(path, ":", node.Mark().line + 1); };
  Lines lines;
  if (root.IsNull()) return OkStatus();
  if (!root.IsMap()) return base::InvalidArgument(at(root), ": expected sections like 'server:'");
  for (const auto& section : root) {
    const std::string section_name = section.first.Scalar();
    if (const Status once = AddKey(section.first, section_name, lines); !once.ok())
      return once.Annotate(at(section.first));
    if (section_name == kModels) continue;  // ReadModels
    if (!section.second.IsMap()) {
      const Status unknown = SetKey(keys, section_name, "");
      return unknown.ok() ? unknown
                          : base::InvalidArgument(at(section.first), ": '", section_name,
                                                  "' must be a section with keys below it; ",
                                                  unknown.message());
    }
    RETURN_IF_ERROR(ApplySection(section_name, section.second, path, keys, lines));
  }
  return OkStatus();
}

// True for a valid Prometheus metric name. Source: its data model.
bool IsMetricName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == ':';
  };
  return std::all_of(name.begin(), name.end(), allowed) &&
         (name.empty() || name[0] < '0' || name[0] > '9');
}

// Checks the feed-forward modes as far as possible without the model, whose number of layers is not
// known yet.
Status CheckFfn(const FfnOptions& ffn) {
  constexpr int kLayersMax = 1 << 16;
  const auto modes = ParseFfnModes(ffn.modes, kLayersMax, FfnMode::kDense);
  if (!modes.ok()) return modes.status().Annotate("engine.ffn_mode");
  const auto also = ParseFfnModeList(ffn.also);
  if (!also.ok()) return also.status().Annotate("engine.ffn_also");
  if (ffn.controller_recall > 0 && ffn.audit_interval == 0) {
    return base::InvalidArgument("engine.controller_recall: the controller goes by audits, and ",
                                 "engine.audit_interval is 0");
  }
  const bool shadow =
      ffn.audit_shadow == AuditShadow::kSign || ffn.audit_shadow == AuditShadow::kLowRank;
  if (shadow && ffn.audit_interval == 0) {
    return base::InvalidArgument(
        "engine.audit_shadow: it is audited, and engine.audit_interval is 0");
  }
  return OkStatus();
}

// Sets one key of an entry of `models` that is not a section.
Status ApplyModelKey(const std::string& key, const YAML::Node& value, ServerConfig& config,
                     ModelEntry& entry) {
  const std::vector<Key> keys = KeysOf(config);
  if (key == "path" || key == "name") return SetKey(keys, "model." + key, value.Scalar());
  if (key == "aliases") {
    const auto items = ItemsOf(value);
    return items.has_value() ? SetKeyList(keys, "model.aliases", *items)
                             : SetKey(keys, "model.aliases", value.Scalar());
  }
  if (key == "pinned") {
    if (!YAML::convert<bool>::decode(value, entry.pinned))
      return base::InvalidArgument("pinned: expected true or false, found '", value.Scalar(), "'");
    return OkStatus();
  }
  if (key == "keep_alive") {
    const auto time = SecondsOf(value.Scalar());
    if (!time.has_value() || *time > 1e9)
      return base::InvalidArgument("keep_alive: expected seconds or a duration such as 5m, or -1, ",
                                   "found '", value.Scalar(), "'");
    entry.keep_alive_s = *time < 0 ? -1 : static_cast<int>(*time);
    return OkStatus();
  }
  return base::InvalidArgument("'", key, "': a model has path, name, aliases, pinned, keep_alive, ",
                               "and sections such as engine");
}

// True if all models share the section or key.
bool OfDaemon(const std::string& section, const YAML::Node& keys) {
  static constexpr std::string_view kShared[] = {"model", "server", "grpc", "metrics", "log"};
  return std::find(std::begin(kShared), std::end(kShared), section) != std::end(kShared) ||
         (section == "memory" && keys["budget_bytes"].IsDefined());
}

Result<ModelEntry> ReadModel(const YAML::Node& node, const std::string& path,
                             const ServerConfig& daemon) {
  const auto at = [&](const YAML::Node& each) { return StrCat(path, ":", each.Mark().line + 1); };
  if (!node.IsMap() || !node["path"].IsDefined())
    return base::InvalidArgument(at(node), ": models: expected entries like '- path: FILE'");
  auto config = std::make_shared<ServerConfig>(daemon);
  config->model_name.clear();
  config->model_aliases.clear();
  ModelEntry entry;
  Lines lines;
  for (const auto& part : node) {
    const std::string key = part.first.Scalar();
    Status set = AddKey(part.first, key, lines);
    if (set.ok() && part.second.IsMap() && OfDaemon(key, part.second))
      set = base::InvalidArgument("'", key, "' is for the whole daemon, not for one model");
    if (set.ok() && !part.second.IsMap()) set = ApplyModelKey(key, part.second, *config, entry);
    if (!set.ok()) return set.Annotate(at(part.first));
    if (part.second.IsMap())
      RETURN_IF_ERROR(ApplySection(key, part.second, path, KeysOf(*config), lines));
  }
  if (const Status ffn = CheckFfn(config->model.ffn); !ffn.ok()) return ffn.Annotate(at(node));
  entry.config = std::move(config);
  return entry;
}

// The plain names and aliases of an entry of the list.
std::vector<std::string> NamesOf(const YAML::Node& node) {
  const bool named = node["name"].IsDefined();
  ServerConfig config;
  config.model_name = named ? node["name"].Scalar() : hub::ServedName(node["path"].Scalar());
  if (node["aliases"].IsDefined()) config.model_aliases = node["aliases"].Scalar();
  std::vector<std::string> names = ModelNames(config);
  for (std::string& name : names) name = PlainName(name);
  return names;
}

// Appends a model to the list, unless it has one of that path or name.
void AddModel(const std::string& path, const std::string& name, YAML::Node& list) {
  for (const auto& node : list) {
    if (!node.IsMap() || !node["path"].IsDefined()) continue;
    if (node["path"].Scalar() == path) return;
    const std::vector<std::string> names = NamesOf(node);
    if (std::find(names.begin(), names.end(), PlainName(name)) == names.end()) continue;
    if (node["aliases"].IsDefined())
      base::LogWarning("the model ", path, " is left out: ", node["path"].Scalar(),
                       " has the name or alias ", name);
    return;
  }
  YAML::Node node;
  node["path"] = path;
  node["name"] = name;
  list.push_back(node);
}

// The models and names that clients have added. A damaged list of them ends no daemon.
AddedModels AddedTo(const std::string& folder) {
  auto added = ReadAddedModels(folder);
  if (added.ok()) return *std::move(added);
  base::LogWarning("what clients have added is left out: ", added.status().message());
  return {};
}

// Appends the models that server.models_dir holds, and those that clients have added there.
Status AddFolder(const std::string& path, const ServerConfig& daemon, YAML::Node& list) {
  std::error_code error;
  if (!std::filesystem::is_directory(daemon.models_dir, error))
    return base::NotFound("server.models_dir: ", daemon.models_dir, " is not a folder");
  // A model that sleeps takes some 110 KiB.
  constexpr std::size_t kModelsMax = 500;
  const std::vector<hub::FoundModel> models = hub::ModelsIn(daemon.models_dir);
  if (models.size() > kModelsMax)
    base::LogWarning("server.models_dir: the first ", kModelsMax, " models are served");
  for (const hub::FoundModel& found : std::span(models).first(std::min(models.size(), kModelsMax)))
    AddModel(found.path, found.name, list);
  const AddedModels added = AddedTo(daemon.models_dir);
  for (const AddedModels::Model& each : added.models) {
    if (base::PathExists(each.path))
      AddModel(each.path, each.name, list);
    else
      base::LogWarning("the model ", each.name, " is left out: ", each.path, " is gone");
  }
  if (list.size() > 0) return OkStatus();
  return base::NotFound("server.models_dir: ", daemon.models_dir, " has no model; `thermocline ",
                        "pull` fetches one, and ", path.empty() ? "model.path" : path,
                        " names others");
}

// True if the file or an override gives model.path, were it the default.
bool GivesPath(const YAML::Node& root, const std::vector<std::string>& overrides) {
  const bool has_section = root.IsMap() && root["model"].IsDefined();
  return (has_section && root["model"].IsMap() && root["model"]["path"].IsDefined()) ||
         std::any_of(overrides.begin(), overrides.end(),
                     [](const auto& each) { return each.starts_with("model.path="); });
}

// The list `models` and what server.models_dir holds; a model.path that is `given` is the first.
Result<YAML::Node> ListOf(const YAML::Node& root, const std::string& path, bool given,
                          const ServerConfig& config) {
  const bool has_list = root.IsMap() && root[std::string(kModels)].IsDefined();
  YAML::Node list = has_list ? YAML::Clone(root[std::string(kModels)]) : YAML::Node();
  const bool listed = !list.IsNull();
  if (listed && (!list.IsSequence() || list.size() == 0))
    return base::InvalidArgument(path, ":", root[std::string(kModels)].Mark().line + 1,
                                 ": models: expected a list of entries like '- path: FILE'");
  if (listed && given)
    return base::InvalidArgument("model.path names one model, and models a list: leave one out");
  if (config.models_dir.empty()) return list;
  if (given) {
    YAML::Node first;
    first["path"] = config.model.path;
    if (!config.model_name.empty()) first["name"] = config.model_name;
    if (!config.model_aliases.empty()) first["aliases"] = config.model_aliases;
    list.push_back(first);
  }
  RETURN_IF_ERROR(AddFolder(path, config, list));
  return list;
}

// Adds the names that clients have given to models, but for those that are taken.
void AddAliases(const std::string& folder, std::vector<ModelEntry>& entries) {
  const AddedModels added = AddedTo(folder);
  std::set<std::string> taken;
  for (const ModelEntry& entry : entries)
    for (const std::string& name : ModelNames(*entry.config)) taken.insert(PlainName(name));
  for (ModelEntry& entry : entries) {
    auto config = std::make_shared<ServerConfig>(*entry.config);
    const std::string name = ModelNames(*config).front();
    const auto add = [&](const std::string& alias) {
      if (!taken.insert(PlainName(alias)).second) return;
      config->model_aliases += (config->model_aliases.empty() ? "" : ",") + alias;
    };
    for (const AddedModels::Model& each : added.models)
      if (each.path == config->model.path) add(each.name);
    for (const AddedModels::Alias& each : added.aliases)
      if (PlainName(each.model) == PlainName(name)) add(each.alias);
    entry.config = std::move(config);
  }
}

// Reads the list of models. The prefixes of each model have a folder of their own, and an equal
// part of the bytes.
Status ReadModels(const YAML::Node& root, const std::string& path, bool path_given,
                  ServerConfig& config) {
  ASSIGN_OR_RETURN(const YAML::Node list, ListOf(root, path, path_given, config));
  if (list.IsNull()) return OkStatus();
  ServerConfig shared = config;
  shared.model.path = ServerConfig().model.path;
  shared.serving.prefix_path_bytes /= static_cast<std::int64_t>(list.size());
  std::vector<ModelEntry> entries;
  const YAML::Node listed = root.IsMap() ? root[std::string(kModels)] : YAML::Node();
  const std::size_t named = listed.IsDefined() && listed.IsSequence() ? listed.size()
                            : path_given                              ? 1
                                                                      : 0;
  for (const auto& node : list) {
    ASSIGN_OR_RETURN(ModelEntry entry, ReadModel(node, path, shared));
    entry.found = entries.size() >= named;
    if (const std::string& folder = entry.config->serving.prefix_path;
        !folder.empty() && folder == shared.serving.prefix_path) {
      auto own = std::make_shared<ServerConfig>(*entry.config);
      own->serving.prefix_path = StrCat(folder, "/model-", base::HashOf(own->model.path).Hex());
      entry.config = std::move(own);
    }
    entries.push_back(std::move(entry));
  }
  if (!config.models_dir.empty()) AddAliases(config.models_dir, entries);
  config.models = std::move(entries);
  return OkStatus();
}

}  // namespace

Result<ServerConfig> LoadServerConfig(const std::string& path,
                                      const std::vector<std::string>& overrides) {
  ServerConfig config;
  const std::vector<Key> keys = KeysOf(config);
  YAML::Node root;
  if (!path.empty()) {
    ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path, 1 << 20));
    try {
      RETURN_IF_ERROR(CheckOneDocument(text, path));
      root = YAML::Load(text);
      RETURN_IF_ERROR(ApplyYaml(root, path, keys));
    } catch (const YAML::Exception& error) {
      return base::InvalidArgument(path, ":", error.mark.line + 1, ": ", error.msg,
                                   HintOf(text, error.mark.line));
    }
  }
  for (const std::string& assignment : overrides) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos)
      return base::InvalidArgument("--set ", assignment, ": expected key=value");
    const Status set =
        SetOverride(keys, assignment.substr(0, equals), assignment.substr(equals + 1));
    if (!set.ok()) return set.Annotate("--set");
  }
  if (!IsMetricName(config.metrics_prefix)) {
    return base::InvalidArgument(
        "metrics.prefix: '", config.metrics_prefix,
        "' may hold letters, digits, '_' and ':' and begins with no digit");
  }
  RETURN_IF_ERROR(CheckFfn(config.model.ffn));
  RETURN_IF_ERROR(ReadModels(root, path, GivesPath(root, overrides), config));
  return config;
}

}  // namespace thermocline::server
