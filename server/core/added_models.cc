#include "server/core/added_models.h"

#include <algorithm>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/base/json_text.h"
#include "server/core/server_config.h"

namespace thermocline::server {
namespace {

constexpr const char* kAddedFile = "/added-models.json";

Status Malformed(const std::string& path) {
  return base::InvalidArgument(
      path,
      R"(: expected {"models": [{"name", "path", "fetched"}], "aliases": [{"alias", "model"}]})",
      "; without the file the models of the folder are served under their own names");
}

Json::Array ListOf(const Json& file, const char* key) {
  const Json* list = file.Find(key);
  return list != nullptr && list->is_array() ? list->as_array() : Json::Array();
}

Json JsonOf(const AddedModels& added) {
  Json::Array models, aliases;
  for (const auto& each : added.models)
    models.push_back(
        Json::Object{{"name", each.name}, {"path", each.path}, {"fetched", each.fetched}});
  for (const auto& each : added.aliases)
    aliases.push_back(Json::Object{{"alias", each.alias}, {"model", each.model}});
  return Json::Object{{"models", std::move(models)}, {"aliases", std::move(aliases)}};
}

}  // namespace

const AddedModels::Model* AddedModels::FindModel(const std::string& name) const {
  const auto found = std::find_if(models.begin(), models.end(), [&](const Model& each) {
    return PlainName(each.name) == PlainName(name);
  });
  return found == models.end() ? nullptr : &*found;
}

const AddedModels::Alias* AddedModels::FindAlias(const std::string& name) const {
  const auto found = std::find_if(aliases.begin(), aliases.end(), [&](const Alias& each) {
    return PlainName(each.alias) == PlainName(name);
  });
  return found == aliases.end() ? nullptr : &*found;
}

bool IsAddableName(std::string_view name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return c > ' ' && c < '\x7F' && c != ',' && c != '"' && c != '\\';
  });
  return !name.empty() && name.size() <= kNameBytesMax && plain && name != "*";
}

Result<AddedModels> ReadAddedModels(const std::string& folder) {
  const std::string path = folder + kAddedFile;
  constexpr std::uint64_t kFileBytesMax = 16 << 20;
  AddedModels added;
  if (!base::PathExists(path)) return added;
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path, kFileBytesMax));
  const auto file = base::ParseJson(text);
  if (!file.ok()) return file.status().Annotate(path);
  for (const Json& each : ListOf(*file, "models")) {
    const Json* fetched = each.Find("fetched");
    added.models.push_back(
        {.name = TextOf(each, "name"),
         .path = TextOf(each, "path"),
         .fetched = fetched != nullptr && fetched->is_bool() && fetched->as_bool()});
    if (!IsAddableName(added.models.back().name) || added.models.back().path.empty())
      return Malformed(path);
  }
  for (const Json& each : ListOf(*file, "aliases")) {
    added.aliases.push_back({.alias = TextOf(each, "alias"), .model = TextOf(each, "model")});
    if (!IsAddableName(added.aliases.back().alias) || added.aliases.back().model.empty())
      return Malformed(path);
  }
  return added;
}

Status ChangeAddedModels(const std::string& folder,
                         const std::function<Status(AddedModels&)>& change) {
  const std::string path = folder + kAddedFile;
  ASSIGN_OR_RETURN(const auto lock, base::FolderLock::Of(path));
  ASSIGN_OR_RETURN(AddedModels added, ReadAddedModels(folder));
  RETURN_IF_ERROR(change(added));
  ASSIGN_OR_RETURN(const auto writer, base::FileWriter::Create(path));
  RETURN_IF_ERROR(writer->Append(JsonOf(added).Dump(2) + "\n"));
  return writer->Commit();
}

}  // namespace thermocline::server
