// Reader of Hugging Face folders: config.json and *.safetensors, one file or sharded with an
// index.
//
// Tensors get GGUF's names and order of rows.
#include "engine/model/huggingface/open_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>
#include <unordered_set>

#include "engine/base/index.h"
#include "engine/base/json_limits.h"
#include "engine/base/log.h"
#include "engine/model/byte_reader.h"
#include "engine/model/fused_tensors.h"
#include "engine/model/huggingface/bitnet.h"
#include "engine/model/huggingface/config.h"
#include "engine/model/huggingface/fields.h"
#include "engine/model/huggingface/folder_config.h"
#include "engine/model/huggingface/names.h"
#include "engine/model/huggingface/packed_weights.h"
#include "engine/model/huggingface/recurrent.h"
#include "engine/model/huggingface/safetensors.h"
#include "engine/model/huggingface/stored_experts.h"
#include "engine/model/huggingface/tokenizer.h"
#include "engine/model/huggingface/xielu.h"
#include "engine/model/latent_attention.h"
#include "engine/model/model_file.h"
#include "engine/model/sampling_metadata.h"

namespace thermocline::model {
namespace {

Status AddParts(const std::vector<TensorInfo>& parts, ModelFile& model) {
  model.tensors.insert(model.tensors.end(), parts.begin(), parts.end());
  return OkStatus();
}

// Two names of the file may mean the same tensor.
Status CheckNames(const ModelFile& model) {
  std::unordered_set<std::string_view> seen;
  for (const TensorInfo& tensor : model.tensors) {
    if (!seen.insert(tensor.name).second)
      return base::DataLoss("tensor '", tensor.name, "' appears twice");
  }
  return OkStatus();
}

// Appends `tensor` under its GGUF name: a fused query-key-value tensor as its three parts, learned
// positions and rotary heads in GGUF's order.
Status Place(TensorInfo tensor, ModelFile& model) {
  const ModelConfig& c = model.config;
  const auto add = [&](const std::string& name, std::int64_t rows, const HeadOrder& order) {
    TensorInfo part = tensor;
    part.name = name;
    (part.num_dims == 1 ? part.cols : part.rows) = rows;
    part.bytes = part.rows * part.cols * part.type->block_bytes;
    part.order = order;
    model.tensors.push_back(std::move(part));
    return OkStatus();
  };
  if (IsGateUp(tensor) && !c.architecture->hf_gpt_oss && !c.architecture->turned_experts) {
    ASSIGN_OR_RETURN(const auto parts, SplitGateUp(tensor));
    return AddParts(parts, model);
  }
  if (IsFusedRows(tensor)) {
    ASSIGN_OR_RETURN(const auto parts, SplitQkv(tensor, c));
    return AddParts(parts, model);
  }
  const std::int64_t rows = tensor.num_dims == 1 ? tensor.cols : tensor.rows;
  const bool pairs =
      c.architecture->position == Position::kRotaryPairs && !c.architecture->hf_pairs;
  const std::size_t dot = tensor.name.rfind('.');
  const std::string module = tensor.name.substr(0, dot), suffix = tensor.name.substr(dot);
  if (module.ends_with(".attn_qkv") && !c.recurrent.any()) {
    const int kv = c.num_key_value_heads, group = c.num_attention_heads / kv, dim = c.head_dim;
    if (rows != std::int64_t{kv} * (group + 2) * dim)
      return base::InvalidArgument("tensor '", tensor.name, "' has ", rows, " rows, expected ",
                                   kv * (group + 2) * dim);
    const std::string layer = module.substr(0, module.size() - 3);  // "blk.0.attn_"
    RETURN_IF_ERROR(add(layer + "q" + suffix, kv * group * dim, {dim, pairs, group, group + 2, 0}));
    RETURN_IF_ERROR(add(layer + "k" + suffix, kv * dim, {dim, pairs, 1, group + 2, group}));
    return add(layer + "v" + suffix, kv * dim, {dim, false, 1, group + 2, group + 1});
  }
  if (pairs && (module.ends_with(".attn_q") || module.ends_with(".attn_k"))) {
    if (c.head_dim % 2 != 0 || rows % c.head_dim != 0)
      return base::DataLoss("tensor '", tensor.name, "' has ", rows, " rows, not whole heads of ",
                            c.head_dim);
    return add(tensor.name, rows, {.head_dim = c.head_dim, .halves = true});
  }
  const bool plain = module.ends_with(".ssm_norm") ||
                     (c.architecture->plain_output_norm && module == "output_norm");
  if (const int skip = c.architecture->hf_position_skip;
      skip > 0 && tensor.name == "position_embd.weight" && rows > skip) {
    tensor.offset += skip * tensor.row_bytes();
    return add(tensor.name, rows - skip, {});
  }
  if (c.architecture->norm_plus_one && module.ends_with("_norm") && !plain && suffix == ".weight")
    tensor.plus = 1;
  return add(tensor.name, rows, {});
}

// The type of a tensor's elements; `packed`: its bytes are read by their family's own reader.
Result<const FileType*> TypeOf(const StoredTensor& stored, bool packed) {
  static const std::map<std::string, int> kTypes = {
      {"F32", 0}, {"F16", 1}, {"BF16", 30}, {"U8", 24}};
  const auto type = kTypes.find(stored.type);
  if (type == kTypes.end() || packed != (type->first == "U8"))
    return base::Unimplemented("tensor '", stored.name, "' has the unsupported type ", stored.type);
  return FindFileType(type->second);
}

Status AddTensor(const StoredTensor& stored, ModelFile& model) {
  const std::string& name = stored.name;
  if (model.config.IsOfPrediction(name, "model.layers.")) return OkStatus();
  if (IsOfAnotherSense(name)) {
    model.left_out.push_back(name);
    return OkStatus();
  }
  ASSIGN_OR_RETURN(GgufName called,
                   GgufNameOf(name, *model.config.architecture, model.config.ranks()));
  if (called.name.empty()) return OkStatus();
  // Granite's shared network is the only network of a model without experts.
  const std::size_t shared = called.name.find("_shexp");
  if (shared != std::string::npos && !model.config.experts.any())
    called.name.erase(shared, std::string_view("_shexp").size());
  if (called.name == "output.weight" && model.config.tie_word_embeddings) {
    base::LogWarning(name, " is left out: config.json says that the embedding takes its place ",
                     "(tie_word_embeddings)");
    return OkStatus();
  }
  TensorInfo tensor{.name = called.name, .file = stored.file};
  const bool mxfp4 = tensor.name.ends_with(".blocks") || tensor.name.ends_with(".scales");
  const bool ternary = model.config.architecture->sub_norms && tensor.name.ends_with(".weight");
  ASSIGN_OR_RETURN(tensor.type, TypeOf(stored, mxfp4 || (ternary && stored.type == "U8")));
  std::vector<std::int64_t> dims = stored.dims;
  tensor.num_dims = base::IntSize(dims);
  if (dims.empty() || dims.size() > (mxfp4 ? 4 : 3))
    return base::DataLoss("tensor '", name, "' has ", dims.size(), " dimensions");
  constexpr std::int64_t kElementsMax = std::int64_t{1} << 48;
  std::int64_t elements = 1;
  for (const std::int64_t dim : dims) {
    if (dim < 1 || dim > (1 << 24) || elements > kElementsMax / dim)
      return base::DataLoss("tensor '", name, "' has the dimension ", dim);
    elements *= dim;
  }
  if (dims.size() == 4) {  // the blocks of a row
    dims[2] *= dims[3];
    dims.pop_back();
  }
  tensor.cols = dims.back();
  if (dims.size() == 3) tensor.slabs = dims.front();
  tensor.rows = dims.size() > 1 ? tensor.slabs * dims[dims.size() - 2] : 1;
  tensor.bytes = tensor.rows * tensor.cols * tensor.type->block_bytes;
  RETURN_IF_ERROR(CheckInside(stored, tensor.bytes, *model.files[stored.file]));
  tensor.offset = stored.offset();
  return called.expert >= 0 ? AddPiece(tensor, called.expert, model)
                            : Place(std::move(tensor), model);
}

// Adds the tensors of all shards; a weight's scales may lie in another one.
Status AddSafetensors(const std::vector<std::string>& paths, ModelFile& model) {
  if (paths.size() > kModelFilesMax)
    return base::DataLoss(model.path, ": ", paths.size(), " files of weights; at most ",
                          kModelFilesMax, " are read");
  std::vector<StoredTensor> tensors;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(auto file, base::OpenFile(path));
    ASSIGN_OR_RETURN(const auto more, ReadSafetensors(*file, base::IntSize(model.files)));
    model.files.push_back(std::move(file));
    if (more.size() > kModelTensorsMax - tensors.size())
      return base::DataLoss(path, ": with this file the model has more than ", kModelTensorsMax,
                            " tensors");
    tensors.insert(tensors.end(), more.begin(), more.end());
  }
  RETURN_IF_ERROR(DecodeWeights(model.metadata, tensors, model).Annotate(model.path));
  RETURN_IF_ERROR(TakeXielu(tensors, model).Annotate(model.path));
  for (const StoredTensor& tensor : tensors) {
    const Status added = AddTensor(tensor, model);
    if (!added.ok()) return added.Annotate(model.files[tensor.file]->path());
  }
  return CheckNames(model).Annotate(model.path);
}

// Adds the matrices behind the pooling, which lie in folders of their own.
Status AddDenseModules(const std::string& folder, ModelFile& model) {
  for (const char* name : {"2_Dense", "3_Dense"}) {
    const std::string path = FolderFile(folder, StrCat(name, "/config.json"));
    if (!base::PathExists(path)) continue;
    ASSIGN_OR_RETURN(const Json config, ReadFolderJson(path));
    const Json *bias = config.Find("bias"), *activation = config.Find("activation_function");
    const bool plain = bias != nullptr && bias->is_bool() && !bias->as_bool() &&
                       activation != nullptr && activation->is_string() &&
                       activation->as_string().ends_with("Identity");
    if (!plain)
      return base::Unimplemented(path,
                                 ": a dense module with a bias or an activation is not "
                                 "supported");
    ASSIGN_OR_RETURN(auto file,
                     base::OpenFile(FolderFile(folder, StrCat(name, "/model.safetensors"))));
    ASSIGN_OR_RETURN(auto tensors, ReadSafetensors(*file, base::IntSize(model.files)));
    model.files.push_back(std::move(file));
    for (StoredTensor& tensor : tensors) {
      tensor.name = StrCat(name, ".", tensor.name);
      RETURN_IF_ERROR(AddTensor(tensor, model));
    }
  }
  return OkStatus();
}

Result<std::vector<std::string>> ShardNames(const std::string& folder) {
  const std::string index_path = FolderFile(folder, "model.safetensors.index.json");
  if (!base::PathExists(index_path)) return std::vector<std::string>{"model.safetensors"};
  ASSIGN_OR_RETURN(const Json index, ReadFolderJson(index_path));
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
  out.reserve(names.size());
  for (const auto& [name, unused] : names) out.push_back(name);
  return out;
}

// Adds the tokens of config.json or generation_config.json that end a turn.
void AddStopIds(const Json& config, Vocabulary& vocabulary) {
  const Json* eos = config.Find("eos_token_id");
  if (eos == nullptr) return;
  const Json::Array ids = eos->is_array() ? eos->as_array() : Json::Array{*eos};
  constexpr std::size_t kStopIdsMax = 256;  // models have a few
  auto& ids_so_far = vocabulary.stop_ids;
  for (const Json& id : ids) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() >= vocabulary.size()) continue;
    if (ids_so_far.size() >= kStopIdsMax) return;
    const int token = static_cast<int>(id.as_int());
    if (std::find(ids_so_far.begin(), ids_so_far.end(), token) == ids_so_far.end())
      ids_so_far.push_back(token);
  }
}

// Muse Glimmer's heads are normed without weights, and queries get a common factor: the weights of
// norms in GGUF.
Status AddQueryFactor(ModelFile& model) {
  const ModelConfig& c = model.config;
  const Json json =
      WithFamilyDefaults(TextConfigOf(model.metadata), std::string(c.architecture->hf_name));
  ASSIGN_OR_RETURN(const double factor, hf::Double(json, {"qk_scale_factor"}, 1.0));
  const auto dim = static_cast<std::size_t>(c.head_dim);
  for (int layer = 0; layer < c.num_hidden_layers; ++layer) {
    const std::string prefix = StrCat("blk.", layer, ".attn_");
    model.AddVector(prefix + "q_norm.weight", std::vector(dim, static_cast<float>(factor)));
    model.AddVector(prefix + "k_norm.weight", std::vector(dim, 1.0F));
  }
  return OkStatus();
}

// Adds the tensors under GGUF's names, unpacked and arranged as the family needs them.
Status ReadTensors(const std::string& folder, ModelFile& model) {
  ASSIGN_OR_RETURN(auto shards, ShardNames(folder));
  for (std::string& shard : shards) shard = FolderFile(folder, shard);
  RETURN_IF_ERROR(AddSafetensors(shards, model));
  if (model.config.architecture->encoder) RETURN_IF_ERROR(AddDenseModules(folder, model));
  if (!model.left_out.empty())
    base::LogWarning(folder, ": ", model.left_out.size(), " tensors of other senses than text are ",
                     "left out (", model.left_out.front(), " ...)");
  RETURN_IF_ERROR(CheckPieces(model).Annotate(folder));
  RETURN_IF_ERROR(SplitLatent(model).Annotate(folder));
  RETURN_IF_ERROR(ArrangeRecurrent(model).Annotate(folder));
  if (model.config.architecture->hf_gpt_oss || model.config.architecture->turned_experts)
    RETURN_IF_ERROR(UnpackExperts(model).Annotate(folder));
  if (model.config.architecture->sub_norms) {
    ASSIGN_OR_RETURN(const BitNetWeights weights, ReadBitNetWeights(model.metadata));
    RETURN_IF_ERROR(UnpackBitNet(weights, model).Annotate(folder));
  }
  if (model.Find("output.weight") == nullptr && !model.config.tie_word_embeddings &&
      !model.config.architecture->encoder) {
    return base::InvalidArgument(folder,
                                 ": tensor 'lm_head.weight' is missing, and config.json "
                                 "does not say that the embedding takes its place "
                                 "(tie_word_embeddings)");
  }
  if (model.config.architecture->hf_name == "muse_glimmer_text")
    RETURN_IF_ERROR(AddQueryFactor(model).Annotate(folder));
  const RopeConfig& rope = model.config.rope;
  const bool longer = !rope.long_divisors.empty();
  if (!rope.divisors.empty())
    model.AddVector(longer ? "rope_factors_short.weight" : "rope_freqs.weight", rope.divisors);
  if (longer) model.AddVector("rope_factors_long.weight", rope.long_divisors);
  model.has_weights = true;
  return OkStatus();
}

// Reads the tokenizer, if there is one; without one a model still runs on token ids. `generation`:
// generation_config.json.
Status ReadVocabulary(const std::string& folder, const Json& generation, ModelFile& model) {
  auto vocabulary = ReadHuggingFaceTokenizer(folder);
  if (vocabulary.status().code() == StatusCode::kNotFound) return OkStatus();
  ASSIGN_OR_RETURN(model.vocabulary, std::move(vocabulary));
  Vocabulary& v = model.vocabulary;
  AddStopIds(model.metadata, v);
  AddStopIds(generation, v);
  MarkTurnTokens(v);
  v.infill = FindInfillTokens(v);
  if (v.size() > model.config.vocab_size) {
    return base::InvalidArgument(folder, ": the tokenizer has ", v.size(), " tokens, the model ",
                                 model.config.vocab_size);
  }
  while (v.size() < model.config.vocab_size) {  // rows that training never used
    v.tokens.push_back(StrCat("[PAD", v.size(), "]"));
    v.types.push_back(TokenType::kUnused);
    if (v.kind == VocabularyKind::kSentencePiece) v.scores.push_back(-10000.0F);
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<ModelFile>> OpenHuggingFace(const std::string& folder) {
  auto model = std::make_unique<ModelFile>();
  model->path = folder;
  model->format = "Hugging Face";
  RETURN_IF_ERROR(ReadFolderConfig(folder, *model));
  RETURN_IF_ERROR(ReadTensors(folder, *model));
  Json generation{Json::Object()};
  if (const std::string path = FolderFile(folder, "generation_config.json");
      base::PathExists(path)) {
    ASSIGN_OR_RETURN(generation, ReadFolderJson(path));
    auto sampling = SamplingFromGenerationConfig(generation);
    if (!sampling.ok()) return sampling.status().Annotate(path);
    model->sampling = *sampling;
  }
  RETURN_IF_ERROR(ReadVocabulary(folder, generation, *model));
  model->config.separator_token = model->vocabulary.eos;
  return model;
}

}  // namespace thermocline::model
