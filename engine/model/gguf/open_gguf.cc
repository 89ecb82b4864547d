// Reader of GGUF files: turns the contents that container.h reads into a model.
#include "engine/model/gguf/open_gguf.h"

#include <algorithm>
#include <unordered_set>

#include "engine/base/ratio.h"
#include "engine/model/fused_tensors.h"
#include "engine/model/gguf/container.h"
#include "engine/model/gguf/keys.h"
#include "engine/model/gguf/metadata.h"
#include "engine/model/gguf/powerinfer.h"
#include "engine/model/gguf/shards.h"
#include "engine/model/held_nvfp4.h"
#include "engine/model/held_types.h"
#include "engine/model/latent_attention.h"
#include "engine/model/sampling_metadata.h"

namespace thermocline::model {
namespace {

// Splits fused gate and up into two tensors, and fused query-key-value tensors into three.
Status SplitFused(ModelFile& model) {
  const ModelConfig& c = model.config;
  std::vector<TensorInfo> tensors;
  for (TensorInfo& tensor : model.tensors) {
    if (c.IsOfPrediction(tensor.name, "blk.")) continue;
    // The files of Phi 3 and GLM 4 name both of them up.
    if (c.architecture->gated && tensor.name.ends_with(".ffn_up.weight") &&
        tensor.rows == 2 * std::int64_t{c.intermediate_size})
      tensor.name.replace(tensor.name.rfind("ffn_up"), 6, "ffn_gate_up");
    std::vector<TensorInfo> parts = {tensor};
    if (IsGateUp(tensor)) {
      ASSIGN_OR_RETURN(parts, SplitGateUp(tensor));
    } else if (tensor.name.find(".attn_qkv.") != std::string::npos && !c.recurrent.any()) {
      ASSIGN_OR_RETURN(parts, SplitQkv(tensor, c));
    }
    tensors.insert(tensors.end(), parts.begin(), parts.end());
  }
  std::unordered_set<std::string_view> seen;
  for (const TensorInfo& tensor : tensors) {
    if (!seen.insert(tensor.name).second)
      return base::InvalidArgument("tensor '", tensor.name,
                                   "' is there alone and fused with others");
  }
  model.tensors = std::move(tensors);
  return OkStatus();
}

// Reads rotary divisors from a tensor, if the file has it.
Status ReadDivisors(const std::string& name, ModelFile& model, std::vector<float>& divisors) {
  const TensorInfo* tensor = model.Find(name);
  if (tensor == nullptr) return OkStatus();
  const std::int64_t expected = model.config.rope.dim / 2;
  if (tensor->type->ggml_id != 0 || tensor->rows != 1 || tensor->cols != expected) {
    return base::InvalidArgument("tensor '", name, "' is ", tensor->type->name, " [", tensor->rows,
                                 ", ", tensor->cols, "], expected f32 [1, ", expected, "]");
  }
  divisors.resize(expected);
  return model.ReadRows(*tensor, 0, 1, std::as_writable_bytes(std::span(divisors)));
}

Status ReadConfig(ModelFile& model) {
  ASSIGN_OR_RETURN(model.vocabulary, VocabularyFromMetadata(model.metadata));
  RETURN_IF_ERROR(ValidateVocabulary(model.vocabulary));
  ASSIGN_OR_RETURN(model.sampling, SamplingFromMetadata(model.metadata));
  model.has_weights = !model.tensors.empty();
  if (!model.has_weights) return OkStatus();
  ASSIGN_OR_RETURN(model.config, ConfigFromMetadata(model));
  model.config.separator_token = model.vocabulary.eos;
  return ValidateConfig(model.config);
}

// Reads Phi 3's divisors for short contexts and for long ones.
Status ReadLongRope(ModelFile& model) {
  RopeConfig& rope = model.config.rope;
  if (model.Find("rope_factors_long.weight") == nullptr) return OkStatus();
  RETURN_IF_ERROR(ReadDivisors("rope_factors_short.weight", model, rope.divisors));
  RETURN_IF_ERROR(ReadDivisors("rope_factors_long.weight", model, rope.long_divisors));
  const Keys keys(model.metadata);
  const std::string scaling = StrCat(model.config.architecture->name, ".rope.scaling.");
  const int positions = model.config.max_position_embeddings;
  ASSIGN_OR_RETURN(rope.original_max_position,
                   keys.Int(scaling + "original_context_length", positions));
  ASSIGN_OR_RETURN(rope.attention_factor, keys.Double(scaling + "attn_factor", 0.0));
  rope.factor = std::max(1.0, base::Ratio(positions, std::max(1, rope.original_max_position)));
  rope.scaling = RopeScaling::kLong;
  return OkStatus();
}

Status ReadParameters(ModelFile& model) {
  if (!model.has_weights) return OkStatus();
  RETURN_IF_ERROR(SplitFused(model));
  HoldInNativeTypes(model);
  RETURN_IF_ERROR(HoldNvfp4(model));
  RETURN_IF_ERROR(SplitLatent(model));
  RETURN_IF_ERROR(ReadPowerInfer(model));
  RETURN_IF_ERROR(ReadDivisors("rope_freqs.weight", model, model.config.rope.divisors));
  RETURN_IF_ERROR(ReadLongRope(model));
  return ValidateConfig(model.config);
}

}  // namespace

Result<std::unique_ptr<ModelFile>> OpenGguf(const std::string& path) {
  auto model = std::make_unique<ModelFile>();
  model->path = path;
  ASSIGN_OR_RETURN(auto file, base::OpenFile(path));
  ASSIGN_OR_RETURN(GgufContainer first, ReadGgufContainer(*file, 0));
  model->files.push_back(std::move(file));
  model->powerinfer = first.powerinfer;
  model->format = StrCat(first.powerinfer ? "PowerInfer GGUF v" : "GGUF v", first.version);
  model->metadata = std::move(first.metadata);
  model->tensors = std::move(first.tensors);
  RETURN_IF_ERROR(AddGgufShards(path, *model).Annotate(path));
  RETURN_IF_ERROR(ReadConfig(*model).Annotate(path));
  RETURN_IF_ERROR(ReadParameters(*model).Annotate(path));
  return model;
}

}  // namespace thermocline::model
