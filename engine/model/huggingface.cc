// Reader of Hugging Face llama folders: config.json and *.safetensors, one file or sharded with an
// index.
//
//   safetensors := header_bytes:u64 header:JSON data     header := { name: {dtype, shape,
//   data_offsets} }
// Tensors get GGUF's names; the rows of query and key heads are read in GGUF's rotary order.
#include <array>
#include <filesystem>
#include <map>

#include "engine/model/byte_reader.h"
#include "engine/model/model_file.h"

namespace thermocline::model {
namespace {

constexpr std::uint64_t kHeaderBytesMax = std::uint64_t{100} << 20;  // safetensors' own limit

std::string Join(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

Result<Json> ReadJsonFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path));
  auto parsed = base::ParseJson(text);
  if (!parsed.ok()) return parsed.status().Annotate(path);
  return parsed;
}

Result<int> ConfigInt(const Json& config, const char* key, std::optional<int> absent = {}) {
  const Json* value = config.Find(key);
  if (value == nullptr && absent.has_value()) return *absent;
  if (value == nullptr) return base::InvalidArgument("field '", key, "' is missing");
  if (!value->is_int() || value->as_int() < 0 || value->as_int() > INT32_MAX) {
    return base::InvalidArgument("field '", key, "' is ", value->Dump(), ", not a size");
  }
  return static_cast<int>(value->as_int());
}

Result<double> ConfigDouble(const Json& config, const char* key, double absent) {
  const Json* value = config.Find(key);
  if (value == nullptr) return absent;
  if (!value->is_number())
    return base::InvalidArgument("field '", key, "' is ", value->Dump(), ", not a number");
  return value->as_double();
}

bool ConfigFlag(const Json& config, const char* key) {
  const Json* value = config.Find(key);
  return value != nullptr && value->is_bool() && value->as_bool();
}

Result<ModelConfig> ParseConfig(const Json& json) {
  ModelConfig c;
  const Json* type = json.Find("model_type");
  c.architecture = type != nullptr && type->is_string() ? type->as_string() : "";
  if (c.architecture != "llama")
    return base::Unimplemented("model_type '", c.architecture,
                               "' is not supported; supported is llama");
  if (json.Find("rope_scaling") != nullptr)
    return base::Unimplemented("rope_scaling ", json.Find("rope_scaling")->Dump(),
                               " is not supported");
  if (ConfigFlag(json, "attention_bias") || ConfigFlag(json, "mlp_bias"))
    return base::Unimplemented("biases (attention_bias, mlp_bias) are not supported");
  ASSIGN_OR_RETURN(c.hidden_size, ConfigInt(json, "hidden_size"));
  ASSIGN_OR_RETURN(c.intermediate_size, ConfigInt(json, "intermediate_size"));
  ASSIGN_OR_RETURN(c.num_hidden_layers, ConfigInt(json, "num_hidden_layers"));
  ASSIGN_OR_RETURN(c.num_attention_heads, ConfigInt(json, "num_attention_heads"));
  ASSIGN_OR_RETURN(c.num_key_value_heads,
                   ConfigInt(json, "num_key_value_heads", c.num_attention_heads));
  ASSIGN_OR_RETURN(
      c.head_dim, ConfigInt(json, "head_dim",
                            c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0));
  c.rope_dim = c.head_dim;
  ASSIGN_OR_RETURN(c.vocab_size, ConfigInt(json, "vocab_size"));
  ASSIGN_OR_RETURN(c.max_position_embeddings, ConfigInt(json, "max_position_embeddings"));
  ASSIGN_OR_RETURN(c.rms_norm_eps, ConfigDouble(json, "rms_norm_eps", 1e-6));
  ASSIGN_OR_RETURN(c.rope_theta, ConfigDouble(json, "rope_theta", 10000.0));
  const Json* act = json.Find("hidden_act");
  ASSIGN_OR_RETURN(c.hidden_act,
                   ParseActivation(act != nullptr && act->is_string() ? act->as_string() : "silu"));
  ASSIGN_OR_RETURN(c.fatrelu_threshold, ConfigDouble(json, "fatrelu_threshold", 0.0));
  c.tie_word_embeddings = ConfigFlag(json, "tie_word_embeddings");
  RETURN_IF_ERROR(ValidateConfig(c));
  return c;
}

// GGUF's name of a Hugging Face tensor, "" if it is not part of the computation.
Result<std::string> GgufName(const std::string& name) {
  static const std::map<std::string, std::string> kGlobals = {
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"}};
  static const std::map<std::string, std::string> kLayer = {
      {"input_layernorm.weight", "attn_norm.weight"},
      {"post_attention_layernorm.weight", "ffn_norm.weight"},
      {"self_attn.q_proj.weight", "attn_q.weight"},
      {"self_attn.k_proj.weight", "attn_k.weight"},
      {"self_attn.v_proj.weight", "attn_v.weight"},
      {"self_attn.o_proj.weight", "attn_output.weight"},
      {"mlp.gate_proj.weight", "ffn_gate.weight"},
      {"mlp.up_proj.weight", "ffn_up.weight"},
      {"mlp.down_proj.weight", "ffn_down.weight"}};
  if (const auto found = kGlobals.find(name); found != kGlobals.end()) return found->second;
  if (name.ends_with("rotary_emb.inv_freq")) return std::string();
  constexpr std::string_view kPrefix = "model.layers.";
  const std::size_t dot = name.find('.', kPrefix.size());
  if (name.starts_with(kPrefix) && dot != std::string::npos) {
    const auto layer =
        base::ParseNumber<int>(std::string_view(name).substr(kPrefix.size(), dot - kPrefix.size()));
    const auto found = kLayer.find(name.substr(dot + 1));
    if (layer.has_value() && found != kLayer.end())
      return StrCat("blk.", *layer, ".", found->second);
  }
  return base::Unimplemented("tensor '", name, "' does not belong to a llama model");
}

Status AddTensor(const std::string& name, const Json& entry, std::uint64_t data_begin, int file,
                 ModelFile& model) {
  ASSIGN_OR_RETURN(const std::string gguf_name, GgufName(name));
  if (gguf_name.empty() || (gguf_name == "output.weight" && model.config.tie_word_embeddings))
    return OkStatus();
  const Json *dtype = entry.Find("dtype"), *shape = entry.Find("shape"),
             *offsets = entry.Find("data_offsets");
  if (dtype == nullptr || !dtype->is_string() || shape == nullptr || !shape->is_array() ||
      offsets == nullptr || !offsets->is_array() || offsets->as_array().size() != 2) {
    return base::DataLoss("tensor '", name, "' lacks dtype, shape or data_offsets");
  }
  TensorInfo tensor{.name = gguf_name, .file = file};
  static const std::map<std::string, int> kTypes = {{"F32", 0}, {"F16", 1}, {"BF16", 30}};
  const auto type = kTypes.find(dtype->as_string());
  if (type == kTypes.end())
    return base::Unimplemented("tensor '", name, "' has the unsupported type ", dtype->as_string());
  tensor.type = FindFileType(type->second);
  const Json::Array& dims = shape->as_array();
  tensor.num_dims = static_cast<int>(dims.size());
  if (dims.empty() || dims.size() > 2)
    return base::DataLoss("tensor '", name, "' has ", dims.size(), " dimensions");
  for (const Json& dim : dims) {
    if (!dim.is_int() || dim.as_int() < 1 || dim.as_int() > (1 << 24))
      return base::DataLoss("tensor '", name, "' has the dimension ", dim.Dump());
  }
  tensor.cols = dims.back().as_int();
  tensor.rows = dims.size() == 2 ? dims.front().as_int() : 1;
  tensor.bytes = static_cast<std::uint64_t>(tensor.rows * tensor.cols * tensor.type->block_bytes);
  const Json &begin = offsets->as_array()[0], &end = offsets->as_array()[1];
  const std::uint64_t data_bytes = model.files[static_cast<std::size_t>(file)]->size() - data_begin;
  if (!begin.is_int() || !end.is_int() || begin.as_int() < 0 || end.as_int() < begin.as_int() ||
      static_cast<std::uint64_t>(end.as_int()) > data_bytes ||
      static_cast<std::uint64_t>(end.as_int() - begin.as_int()) != tensor.bytes) {
    return base::DataLoss("tensor '", name, "': data_offsets ", offsets->Dump(), " do not match ",
                          tensor.bytes, " bytes inside the file's ", data_bytes,
                          "; the download may be incomplete");
  }
  tensor.offset = data_begin + static_cast<std::uint64_t>(begin.as_int());
  if (gguf_name.ends_with("attn_q.weight"))
    tensor.unpermute_heads = model.config.num_attention_heads;
  if (gguf_name.ends_with("attn_k.weight"))
    tensor.unpermute_heads = model.config.num_key_value_heads;
  if (tensor.unpermute_heads > 0 && tensor.rows % (2 * tensor.unpermute_heads) != 0) {
    return base::DataLoss("tensor '", name, "' has ", tensor.rows,
                          " rows, no even number for each of ", tensor.unpermute_heads, " heads");
  }
  if (model.Find(gguf_name) != nullptr) return base::DataLoss("tensor '", name, "' appears twice");
  model.tensors.push_back(std::move(tensor));
  return OkStatus();
}

Status AddSafetensors(const std::string& path, ModelFile& model) {
  ASSIGN_OR_RETURN(auto file, base::OpenFile(path));
  std::uint64_t header_bytes = 0;
  if (file->size() < 8)
    return base::DataLoss(path, ": ", file->size(), " bytes are no safetensors file");
  RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  if (header_bytes > kHeaderBytesMax || header_bytes > file->size() - 8) {
    return base::DataLoss(path, ": the header claims ", header_bytes, " bytes of the file's ",
                          file->size());
  }
  std::string header(header_bytes, '\0');
  RETURN_IF_ERROR(file->ReadAt(8, std::as_writable_bytes(std::span(header))));
  auto parsed = base::ParseJson(header);
  if (!parsed.ok() || !parsed->is_object())
    return base::DataLoss(path, ": the header is no JSON object");
  const int index = static_cast<int>(model.files.size());
  model.files.push_back(std::move(file));
  for (const auto& [name, entry] : parsed->as_object()) {
    if (name == "__metadata__") continue;
    const Status added = AddTensor(name, entry, 8 + header_bytes, index, model);
    if (!added.ok()) return added.Annotate(path);
  }
  return OkStatus();
}

Result<std::vector<std::string>> ShardNames(const std::string& folder) {
  const std::string index_path = Join(folder, "model.safetensors.index.json");
  if (!base::PathExists(index_path)) return std::vector<std::string>{"model.safetensors"};
  ASSIGN_OR_RETURN(const Json index, ReadJsonFile(index_path));
  const Json* map = index.Find("weight_map");
  if (map == nullptr || !map->is_object())
    return base::DataLoss(index_path, ": field 'weight_map' is missing");
  std::map<std::string, bool> names;
  for (const auto& [tensor, shard] : map->as_object()) {
    if (!shard.is_string() || shard.as_string().find('/') != std::string::npos) {
      return base::DataLoss(index_path, ": tensor '", tensor, "' lies in ", shard.Dump(),
                            ", not a file of this folder");
    }
    names[shard.as_string()] = true;
  }
  std::vector<std::string> out;
  for (const auto& [name, unused] : names) out.push_back(name);
  return out;
}

// The tokens of config.json and generation_config.json at which a turn ends.
void AddStopIds(const Json& config, Vocabulary& vocabulary) {
  const Json* eos = config.Find("eos_token_id");
  if (eos == nullptr) return;
  const Json::Array ids = eos->is_array() ? eos->as_array() : Json::Array{*eos};
  for (const Json& id : ids) {
    if (id.is_int() && id.as_int() >= 0 && id.as_int() < vocabulary.size())
      vocabulary.stop_ids.push_back(static_cast<int>(id.as_int()));
  }
}

}  // namespace

Result<std::unique_ptr<ModelFile>> OpenHuggingFace(const std::string& folder) {
  auto model = std::make_unique<ModelFile>();
  model->path = folder;
  model->format = "Hugging Face";
  const std::string config_path = Join(folder, "config.json");
  if (!base::PathExists(config_path))
    return base::InvalidArgument(folder, ": a folder without config.json is no model");
  ASSIGN_OR_RETURN(model->metadata, ReadJsonFile(config_path));
  auto config = ParseConfig(model->metadata);
  if (!config.ok()) return config.status().Annotate(config_path);
  model->config = *config;
  ASSIGN_OR_RETURN(const auto shards, ShardNames(folder));
  for (const std::string& shard : shards)
    RETURN_IF_ERROR(AddSafetensors(Join(folder, shard), *model));
  if (model->Find("output.weight") == nullptr) model->config.tie_word_embeddings = true;
  model->has_weights = true;
  ASSIGN_OR_RETURN(model->vocabulary, ReadHuggingFaceTokenizer(folder));
  AddStopIds(model->metadata, model->vocabulary);
  if (model->vocabulary.size() > model->config.vocab_size) {
    return base::InvalidArgument(folder, ": the tokenizer has ", model->vocabulary.size(),
                                 " tokens, the model ", model->config.vocab_size);
  }
  Vocabulary& v = model->vocabulary;
  while (v.size() < model->config.vocab_size) {  // rows that training never used
    v.tokens.push_back(StrCat("[PAD", v.size(), "]"));
    v.types.push_back(TokenType::kUnused);
    if (v.kind == VocabularyKind::kSentencePiece) v.scores.push_back(-10000.0F);
  }
  return model;
}

}  // namespace thermocline::model
