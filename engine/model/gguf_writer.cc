#include "engine/model/gguf_writer.h"

#include <algorithm>

#include "engine/base/ratio.h"
#include "engine/base/worker_pool.h"
#include "engine/model/gguf_plan.h"
#include "engine/model/sampling_metadata.h"
#include "engine/model/transpose.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

using kernels::DType;
constexpr std::uint64_t kAlignment = 32;
constexpr std::int64_t kRowsAtOnce = 256;  // between two writes

// Collects the metadata section.
class MetadataBuilder {
 public:
  void Uint(const std::string& key, std::uint32_t value) {
    Key(key, 4);
    Raw(value);
  }
  void Float(const std::string& key, float value) {
    Key(key, 6);
    Raw(value);
  }
  void Bool(const std::string& key, bool value) {
    Key(key, 7);
    Raw(static_cast<std::uint8_t>(value));
  }
  void String(const std::string& key, const std::string& value) {
    Key(key, 8);
    Text(value);
  }
  void Strings(const std::string& key, const std::vector<std::string>& values) {
    ArrayKey(key, 8, values.size());
    for (const std::string& value : values) Text(value);
  }
  template <typename T, typename Values>
  void Numbers(const std::string& key, std::uint32_t type, const Values& values) {
    ArrayKey(key, type, values.size());
    for (const auto value : values) Raw(static_cast<T>(value));
  }
  void Text(const std::string& text) {
    Raw(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
  }
  template <typename T>
  void Raw(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  const std::string& bytes() const { return bytes_; }
  std::uint64_t count() const { return count_; }

 private:
  void Key(const std::string& key, std::uint32_t type) {
    Text(key);
    Raw(type);
    ++count_;
  }
  void ArrayKey(const std::string& key, std::uint32_t type, std::uint64_t count) {
    Key(key, 9);
    Raw(type);
    Raw(count);
  }
  std::string bytes_;
  std::uint64_t count_ = 0;
};

void AddRope(const RopeConfig& rope, const std::string& prefix, MetadataBuilder& out) {
  out.Float(prefix + "rope.freq_base", static_cast<float>(rope.theta));
  if (rope.scaling == RopeScaling::kNone) return;
  const bool yarn = rope.scaling == RopeScaling::kYarn;
  out.String(prefix + "rope.scaling.type", yarn ? "yarn" : "linear");
  out.Float(prefix + "rope.scaling.factor", static_cast<float>(rope.factor));
  if (!yarn) return;
  out.Uint(prefix + "rope.scaling.original_context_length", rope.original_max_position);
  out.Float(prefix + "rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast));
  out.Float(prefix + "rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
  if (rope.attention_factor > 0)
    out.Float(prefix + "rope.scaling.yarn_attn_factor", static_cast<float>(rope.attention_factor));
}

std::uint32_t U32(int value) { return static_cast<std::uint32_t>(value); }

std::uint32_t GatingId(Gating gating) {
  return gating == Gating::kSoftmax ? 1 : gating == Gating::kSigmoid ? 2 : 3;
}

void AddExperts(const ExpertConfig& e, const std::string& prefix, MetadataBuilder& out) {
  if (!e.any()) return;
  out.Uint(prefix + "expert_count", U32(e.num_experts));
  out.Uint(prefix + "expert_used_count", U32(e.num_experts_per_tok));
  out.Uint(prefix + "expert_feed_forward_length", U32(e.intermediate_size));
  if (e.shared_intermediate_size > 0) {
    out.Uint(prefix + "expert_shared_feed_forward_length", U32(e.shared_intermediate_size));
    out.Uint(prefix + "expert_shared_count", 1);
  }
  out.Uint(prefix + "leading_dense_block_count", U32(e.first_layer));
  out.Uint(prefix + "interleave_moe_layer_step", U32(e.step));
  const RouterConfig& router = e.router;
  out.Uint(prefix + "expert_gating_func", GatingId(router.gating));
  out.Bool(prefix + "expert_weights_norm", router.normalise);
  if (router.scale != 1)
    out.Float(prefix + "expert_weights_scale", static_cast<float>(router.scale));
  if (router.groups == 1) return;
  out.Uint(prefix + "expert_group_count", U32(router.groups));
  out.Uint(prefix + "expert_group_used_count", U32(router.groups_used));
}

void AddScales(const ModelConfig& c, const std::string& prefix, MetadataBuilder& out) {
  if (!c.architecture->scales) return;
  out.Float(prefix + "embedding_scale", static_cast<float>(c.embedding_scale));
  out.Float(prefix + "residual_scale", static_cast<float>(c.residual_scale));
  out.Float(prefix + "attention.scale", static_cast<float>(c.attention_scale));
  out.Float(prefix + "logit_scale", static_cast<float>(1 / c.logit_scale));
}

void AddConfig(const ModelConfig& c, MetadataBuilder& out) {
  const std::string prefix = std::string(c.architecture->name) + ".";
  out.Uint(prefix + "context_length", U32(c.max_position_embeddings));
  out.Uint(prefix + "embedding_length", U32(c.hidden_size));
  if (c.pooling_type >= 0) out.Uint(prefix + "pooling_type", U32(c.pooling_type));
  out.Uint(prefix + "block_count", U32(c.num_hidden_layers));
  out.Uint(prefix + "feed_forward_length", U32(c.intermediate_size));
  out.Uint(prefix + "attention.head_count", U32(c.num_attention_heads));
  out.Uint(prefix + "attention.head_count_kv", U32(c.num_key_value_heads));
  out.Uint(prefix + "attention.key_length", U32(c.head_dim));
  out.Uint(prefix + "attention.value_length", U32(c.head_dim));
  if (c.rotary()) out.Uint(prefix + "rope.dimension_count", U32(c.rope.dim));
  out.Uint(prefix + "vocab_size", U32(c.vocab_size));
  if (c.sliding_window > 0) {
    out.Uint(prefix + "attention.sliding_window", U32(c.sliding_window));
    out.Uint("thermocline.max_window_layers", U32(c.max_window_layers));
  }
  if (c.rotary()) AddRope(c.rope, prefix, out);
  AddExperts(c.experts, prefix, out);
  AddScales(c, prefix, out);
  const bool rms = c.architecture->norm == Norm::kRms;
  out.Float(prefix + (rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"),
            static_cast<float>(c.norm_eps));
  out.String("thermocline.activation", std::string(ActivationName(c.hidden_act)));
  if (c.hidden_act == Activation::kFatRelu)
    out.Float("thermocline.fatrelu_threshold", static_cast<float>(c.fatrelu_threshold));
  if (c.sparse_threshold.has_value()) out.Float("powerinfer.sparse_threshold", *c.sparse_threshold);
}

void AddVocabulary(const Vocabulary& v, MetadataBuilder& out) {
  if (v.kind == VocabularyKind::kNone) return;
  const char* kind = v.kind == VocabularyKind::kSentencePiece  ? "llama"
                     : v.kind == VocabularyKind::kByteLevelBpe ? "gpt2"
                                                               : "gemma4";
  out.String("tokenizer.ggml.model", kind);
  out.String("tokenizer.ggml.pre", v.pre_tokenizer.empty() ? "default" : v.pre_tokenizer);
  out.Strings("tokenizer.ggml.tokens", v.tokens);
  if (!v.scores.empty()) out.Numbers<float>("tokenizer.ggml.scores", 6, v.scores);
  out.Numbers<std::int32_t>("tokenizer.ggml.token_type", 5, v.types);
  if (!v.merges.empty()) out.Strings("tokenizer.ggml.merges", v.merges);
  const auto id = [&](const char* name, int value) {
    if (value >= 0) out.Uint(StrCat("tokenizer.ggml.", name, "_token_id"), value);
  };
  id("bos", v.bos);
  id("eos", v.eos);
  id("eot", v.eot);
  id("unknown", v.unk);
  id("padding", v.pad);
  out.Bool("tokenizer.ggml.add_bos_token", v.add_bos);
  out.Bool("tokenizer.ggml.add_space_prefix", v.add_space_prefix);
  out.Bool("tokenizer.ggml.remove_extra_whitespaces", v.remove_extra_whitespaces);
  if (!v.stop_ids.empty()) out.Numbers<std::int32_t>("thermocline.stop_token_ids", 5, v.stop_ids);
  if (!v.chat_template.empty()) out.String("tokenizer.chat_template", v.chat_template);
}

// general.file_type. Source: ggml's enumeration (the K types as their medium mixes).
std::uint32_t FileTypeId(const std::optional<DType>& type) {
  switch (type.value_or(DType::kF16)) {
    case DType::kF32:
      return 0;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 7;
    case DType::kQ5_0:
      return 8;
    case DType::kQ5_1:
      return 9;
    case DType::kQ2_K:
      return 10;
    case DType::kQ3_K:
      return 12;
    case DType::kQ4_K:
      return 15;
    case DType::kQ5_K:
      return 17;
    case DType::kQ6_K:
      return 18;
    case DType::kIQ4_NL:
      return 25;
    case DType::kIQ4_XS:
      return 30;
    case DType::kMXFP4:
      return 38;
    case DType::kBF16:
      return 32;
    case DType::kF16:
      break;
  }
  return 1;
}

std::uint64_t Padded(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Status WritePadding(base::FileWriter& file) {
  const std::string zeros(Padded(file.bytes_written()) - file.bytes_written(), '\0');
  return file.Append(zeros);
}

// One row in the type of the file.
Status ConvertRow(const ModelFile& model, const TensorInfo& tensor, std::int64_t row, DType type,
                  std::span<std::byte> out) {
  const int cols = static_cast<int>(tensor.cols);
  std::vector<std::byte> stored(tensor.row_bytes());
  std::vector<float> values(cols);
  RETURN_IF_ERROR(model.ReadRows(tensor, row, 1, stored));
  kernels::DequantizeRow(*tensor.type->dtype, reinterpret_cast<const std::uint8_t*>(stored.data()),
                         cols, values.data());
  for (float& value : values) value += tensor.plus;
  kernels::QuantizeRow(type, values.data(), cols, reinterpret_cast<std::uint8_t*>(out.data()));
  return OkStatus();
}

// Appends rows, a batch at a time, each made by `make_row(row, out)` on any thread.
template <typename MakeRow>
Status AppendRows(std::int64_t rows, std::size_t row_bytes, const MakeRow& make_row,
                  base::WorkerPool& pool, base::FileWriter& file) {
  std::vector<std::byte> out(row_bytes * kRowsAtOnce);
  std::vector<Status> status(kRowsAtOnce);
  for (std::int64_t first = 0; first < rows; first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, rows - first);
    const auto batch = std::span(out).first(row_bytes * count);
    pool.Run(static_cast<int>(count), [&](int row, int) {
      const std::size_t at = row;
      status[at] = make_row(first + row, batch.subspan(at * row_bytes, row_bytes));
    });
    for (const Status& each : std::span(status).first(count)) RETURN_IF_ERROR(each);
    RETURN_IF_ERROR(file.Append(batch));
  }
  return OkStatus();
}

Status CopyRows(const ModelFile& model, const TensorInfo& tensor, base::FileWriter& file) {
  std::vector<std::byte> out(tensor.row_bytes() * kRowsAtOnce);
  for (std::int64_t first = 0; first < tensor.rows; first += kRowsAtOnce) {
    const std::int64_t count = std::min(kRowsAtOnce, tensor.rows - first);
    const auto rows = std::span(out).first(tensor.row_bytes() * count);
    RETURN_IF_ERROR(model.ReadRows(tensor, first, count, rows));
    RETURN_IF_ERROR(file.Append(rows));
  }
  return OkStatus();
}

// A strip of columns at a time, so that memory stays bounded and the source is read few times.
Status WriteTransposed(const ModelFile& model, const PlannedTensor& planned, base::WorkerPool& pool,
                       base::FileWriter& file) {
  const std::int64_t cols = planned.cols();
  const std::int64_t strip = std::min(planned.rows(), ColumnsAtOnce(cols));
  std::vector<float> values(strip * cols);
  for (std::int64_t first = 0; first < planned.rows(); first += strip) {
    const std::int64_t count = std::min(strip, planned.rows() - first);
    const auto columns = std::span(values).first(count * cols);
    RETURN_IF_ERROR(ReadColumns(model, *planned.tensor, first, count, pool, columns));
    const auto make_row = [&](std::int64_t row, std::span<std::byte> out) {
      kernels::QuantizeRow(planned.type, &columns[row * cols], static_cast<int>(cols),
                           reinterpret_cast<std::uint8_t*>(out.data()));
      return OkStatus();
    };
    RETURN_IF_ERROR(AppendRows(count, kernels::RowBytes(planned.type, static_cast<int>(cols)),
                               make_row, pool, file));
  }
  return OkStatus();
}

// Copies, turns or requantises one tensor.
Status WriteTensor(const ModelFile& model, const PlannedTensor& planned, base::WorkerPool& pool,
                   base::FileWriter& file) {
  const TensorInfo& tensor = *planned.tensor;
  if (planned.transposed) {
    RETURN_IF_ERROR(WriteTransposed(model, planned, pool, file));
  } else if (*tensor.type->dtype == planned.type && tensor.plus == 0 && !tensor.source) {
    RETURN_IF_ERROR(CopyRows(model, tensor, file));
  } else {
    const auto make_row = [&](std::int64_t row, std::span<std::byte> out) {
      return ConvertRow(model, tensor, row, planned.type, out);
    };
    RETURN_IF_ERROR(AppendRows(tensor.rows,
                               kernels::RowBytes(planned.type, static_cast<int>(tensor.cols)),
                               make_row, pool, file));
  }
  return WritePadding(file);
}

void AddSampling(const SamplingDefaults& sampling, MetadataBuilder& metadata) {
  for (const auto& [key, value] : SamplingMetadata(sampling)) {
    if (key == kTopKKey) {
      metadata.Uint(key, static_cast<std::uint32_t>(value));
    } else {
      metadata.Float(key, static_cast<float>(value));
    }
  }
}

}  // namespace

std::vector<std::string> QuantizableTypes() {
  std::vector<std::string> names;
  for (int i = 0; i < kernels::kNumDTypes; ++i) {
    if (kernels::CanQuantize(static_cast<DType>(i))) names.push_back(kernels::kDTypeTraits[i].name);
  }
  return names;
}

std::optional<DType> TypeByName(const std::string& name) {
  for (int i = 0; i < kernels::kNumDTypes; ++i) {
    if (name == kernels::kDTypeTraits[i].name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

Status WriteGguf(const ModelFile& model, const std::string& path, const GgufWriteOptions& options) {
  if (!model.has_weights)
    return base::InvalidArgument(model.path,
                                 ": holds a vocabulary only, there is nothing to convert");
  if (options.type.has_value() && !kernels::CanQuantize(*options.type)) {
    return base::Unimplemented("writing ", kernels::Traits(*options.type).name,
                               " is not supported");
  }
  MetadataBuilder metadata;
  metadata.String("general.architecture", std::string(model.config.architecture->name));
  metadata.String("general.name", options.name);
  metadata.Uint("general.file_type", FileTypeId(options.type));
  metadata.Uint("general.quantization_version", 2);
  AddConfig(model.config, metadata);
  AddVocabulary(model.vocabulary, metadata);
  AddSampling(model.sampling, metadata);

  ASSIGN_OR_RETURN(const std::vector<PlannedTensor> plan, PlanGguf(model, options));
  MetadataBuilder infos;
  std::uint64_t offset = 0;
  for (const PlannedTensor& tensor : plan) {
    const std::int64_t slabs = tensor.tensor->slabs;
    const bool matrix = tensor.tensor->num_dims >= 2;
    infos.Text(tensor.name);
    infos.Raw(std::uint32_t{slabs > 1 ? 3U : matrix ? 2U : 1U});
    infos.Raw(static_cast<std::uint64_t>(tensor.cols()));
    if (matrix) infos.Raw(static_cast<std::uint64_t>(tensor.rows() / slabs));
    if (slabs > 1) infos.Raw(static_cast<std::uint64_t>(slabs));
    infos.Raw(static_cast<std::uint32_t>(FileTypeOf(tensor.type).ggml_id));
    infos.Raw(offset);
    offset +=
        Padded(tensor.rows() * kernels::RowBytes(tensor.type, static_cast<int>(tensor.cols())));
  }
  MetadataBuilder head;
  head.Raw(std::uint32_t{options.powerinfer ? 0x49525750U : 0x46554747U});  // "PWRI", "GGUF"
  head.Raw(std::uint32_t{3});
  head.Raw(static_cast<std::uint64_t>(plan.size()));
  head.Raw(metadata.count());

  base::WorkerPool pool(options.threads);
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  RETURN_IF_ERROR(file->Append(head.bytes()));
  RETURN_IF_ERROR(file->Append(metadata.bytes()));
  RETURN_IF_ERROR(file->Append(infos.bytes()));
  RETURN_IF_ERROR(WritePadding(*file));
  for (std::size_t i = 0; i < plan.size(); ++i) {
    RETURN_IF_ERROR(WriteTensor(model, plan[i], pool, *file));
    if (options.on_progress) options.on_progress(base::Ratio(i + 1, plan.size()));
  }
  return file->Commit();
}

}  // namespace thermocline::model
