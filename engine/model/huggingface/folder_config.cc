#include "engine/model/huggingface/folder_config.h"

#include <filesystem>

#include "engine/base/json_limits.h"
#include "engine/model/byte_reader.h"
#include "engine/model/huggingface/config.h"
#include "engine/model/huggingface/packed_weights.h"

namespace thermocline::model {

std::string FolderFile(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

Result<Json> ReadFolderJson(const std::string& path) {
  constexpr std::uint64_t kBytesMax = 16 << 20;
  constexpr std::size_t kValuesMax = 1 << 20;
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path, kBytesMax));
  auto parsed = base::ParseJsonOf(text, kValuesMax);
  if (!parsed.ok()) return parsed.status().Annotate(path);
  return parsed;
}

Json TextConfigOf(const Json& config) {
  const Json* text = config.Find("text_config");
  if (text == nullptr || !text->is_object()) return config;
  Json out = *text;
  for (const char* key : {"tie_word_embeddings", "eos_token_id"}) {
    const Json* value = config.Find(key);
    if (value != nullptr && out.Find(key) == nullptr) out.object().emplace_back(key, *value);
  }
  return out;
}

namespace {

// Returns the pooling of a folder written by sentence-transformers, as GGUF numbers it (1 mean, 2
// first token, 3 last token); -1 = not given.
Result<int> PoolingOf(const std::string& folder) {
  const std::string path = FolderFile(folder, "1_Pooling/config.json");
  if (!base::PathExists(path)) return -1;
  ASSIGN_OR_RETURN(const Json config, ReadFolderJson(path));
  struct Mode {
    const char* key;
    int type;
  };
  constexpr Mode kModes[] = {{"pooling_mode_mean_tokens", 1},
                             {"pooling_mode_cls_token", 2},
                             {"pooling_mode_lasttoken", 3}};
  if (!config.is_object()) return base::InvalidArgument(path, ": not a JSON object");
  int type = -1, modes = 0;
  for (const auto& [key, value] : config.as_object()) {
    if (!key.starts_with("pooling_mode_") || !value.is_bool() || !value.as_bool()) continue;
    ++modes;
    for (const Mode& mode : kModes)
      if (key == mode.key) type = mode.type;
  }
  if (modes != 1 || type < 0)
    return base::Unimplemented(path, ": of the ways to pool, one of mean, cls and lasttoken");
  return type;
}

// A classifier with one label scores pairs of texts.
Status ReadRanking(const Json& json, ModelConfig& c) {
  const Json* classes = json.Find("architectures");
  const std::string name = classes != nullptr && classes->is_array() &&
                                   !classes->as_array().empty() &&
                                   classes->as_array().front().is_string()
                               ? classes->as_array().front().as_string()
                               : "";
  if (!name.ends_with("ForSequenceClassification")) return OkStatus();
  const Json* labels = json.Find("id2label");
  const std::size_t count =
      labels != nullptr && labels->is_object() ? labels->as_object().size() : 2;
  if (count != 1)
    return base::Unimplemented("a classifier of ", count,
                               " labels is not supported; one with a single label ranks texts");
  c.pooling_type = kPoolingRank;
  const Json *pooling = json.Find("classifier_pooling"), *act = json.Find("classifier_activation");
  c.ranks_by_mean = pooling != nullptr && pooling->is_string() && pooling->as_string() == "mean";
  if (act != nullptr && (!act->is_string() || act->as_string() != "gelu"))
    return base::Unimplemented("classifier_activation = ", act->Dump(), " is not supported");
  return OkStatus();
}

}  // namespace

Status ReadFolderConfig(const std::string& folder, ModelFile& model) {
  const std::string path = FolderFile(folder, "config.json");
  if (!base::PathExists(path))
    return base::InvalidArgument(folder, ": a folder without config.json is no model");
  ASSIGN_OR_RETURN(model.metadata, ReadFolderJson(path));
  // Exports of multimodal models may say it beside the text part's sizes.
  const Json* text = model.metadata.Find("text_config");
  if (model.metadata.Find("quantization_config") == nullptr && text != nullptr &&
      text->is_object() && text->Find("quantization_config") != nullptr)
    model.metadata.Set("quantization_config", Json(*text->Find("quantization_config")));
  // ModelOpt's older exports say it in a file of their own.
  if (model.metadata.Find("quantization_config") == nullptr &&
      base::PathExists(FolderFile(folder, "hf_quant_config.json")))
    model.metadata.Set("quantization_config", Json::Object{{"quant_method", "modelopt"}});
  RETURN_IF_ERROR(CheckQuantization(model.metadata).Annotate(path));
  auto config = ConfigFromHuggingFace(TextConfigOf(model.metadata));
  if (!config.ok()) return config.status().Annotate(path);
  model.config = *config;
  ASSIGN_OR_RETURN(model.config.pooling_type, PoolingOf(folder));
  if (model.config.architecture->encoder)
    RETURN_IF_ERROR(ReadRanking(model.metadata, model.config).Annotate(path));
  return OkStatus();
}

}  // namespace thermocline::model
