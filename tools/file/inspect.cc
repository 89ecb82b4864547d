// `thermocline inspect`: configuration, vocabulary, tensors and metadata of a model file.
#include <cstdio>
#include <map>

#include "engine/base/strings.h"
#include "engine/model/model_file.h"
#include "engine/model/open/builtin.h"
#include "engine/model/open/open_model.h"
#include "tools/common/command_line.h"
#include "tools/common/console.h"

namespace thermocline::tools {
namespace {

struct InspectOptions {
  std::string model;
  bool json = false;
  bool tensors = false;
};

const char* KindName(model::VocabularyKind kind) {
  switch (kind) {
    case model::VocabularyKind::kNone:
      return "none";
    case model::VocabularyKind::kSentencePiece:
      return "sentencepiece";
    case model::VocabularyKind::kByteLevelBpe:
      return "byte-level bpe";
    case model::VocabularyKind::kSpaceBpe:
      return "bpe over characters";
    case model::VocabularyKind::kUnigram:
      return "unigram";
    case model::VocabularyKind::kWordPiece:
      return "wordpiece";
  }
  return "";
}

// Adds the layout of the down projections, and the predictors' ranks [L], if there are any.
void DescribeFeedForward(const model::ModelFile& file, Json& out) {
  int rows = 0, columns = 0;
  Json::Array ranks;
  for (int i = 0; i < file.config.num_hidden_layers; ++i) {
    for (const char* name : {".ffn_down_t.weight", ".ffn_down_t_exps.weight"})
      if (file.Find(StrCat("blk.", i, name)) != nullptr) ++rows;
    for (const char* name : {".ffn_down.weight", ".ffn_down_exps.weight"})
      if (file.Find(StrCat("blk.", i, name)) != nullptr) ++columns;
    if (const auto* in = file.Find(StrCat("blk.", i, ".fc1.weight"))) ranks.push_back(in->rows);
  }
  out.Set("ffn_down", rows == 0      ? "columns"
                      : columns == 0 ? "rows (neuron-major)"
                                     : StrCat("rows (neuron-major) in ", rows, " layers"));
  if (!ranks.empty()) out.Set("predictor_ranks", std::move(ranks));
  if (file.config.sparse_threshold.has_value())
    out.Set("sparse_threshold", *file.config.sparse_threshold);
}

void DescribeExperts(const model::ExpertConfig& e, Json& out) {
  if (!e.any()) return;
  out.Set("num_experts", e.num_experts);
  out.Set("num_experts_per_tok", e.num_experts_per_tok);
  out.Set("expert_intermediate_size", e.intermediate_size);
  out.Set("shared_expert_intermediate_size", e.shared_intermediate_size);
  if (e.first_layer > 0) out.Set("first_layer_with_experts", e.first_layer);
}

Json Describe(const model::ModelFile& file) {
  const model::ModelConfig& c = file.config;
  const model::Vocabulary& v = file.vocabulary;
  Json out{Json::Object{{"path", file.path}, {"format", file.format}}};
  if (file.has_weights) {
    Json config(Json::Object{{"architecture", std::string(c.architecture->name)},
                             {"hidden_size", c.hidden_size},
                             {"intermediate_size", c.intermediate_size},
                             {"num_hidden_layers", c.num_hidden_layers},
                             {"num_attention_heads", c.num_attention_heads},
                             {"num_key_value_heads", c.num_key_value_heads},
                             {"head_dim", c.head_dim},
                             {"vocab_size", c.vocab_size},
                             {"max_position_embeddings", c.max_position_embeddings},
                             {"sliding_window", c.sliding_window},
                             {"norm_eps", c.norm_eps},
                             {"rope_theta", c.rope.theta},
                             {"hidden_act", std::string(model::ActivationName(c.hidden_act))},
                             {"tie_word_embeddings", c.tie_word_embeddings}});
    if (c.window_head_dim > 0) {
      config.Set("window_kv_heads", c.window_kv_heads);
      config.Set("window_head_dim", c.window_head_dim);
    }
    DescribeFeedForward(file, config);
    DescribeExperts(c.experts, config);
    out.Set("config", std::move(config));
    out.Set("num_parameters", c.num_parameters());
  }
  out.Set("tokenizer", Json::Object{{"kind", KindName(v.kind)},
                                    {"pre", v.pre_tokenizer},
                                    {"tokens", v.size()},
                                    {"bos", v.bos},
                                    {"eos", v.eos},
                                    {"add_bos", v.add_bos},
                                    {"chat_template",
                                     v.chat_template.empty() ? Json() : Json(v.chat_template)}});
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> types;
  Json::Array tensors;
  for (const model::TensorInfo& t : file.tensors) {
    auto& [count, bytes] = types[t.type->name];
    ++count;
    bytes += t.bytes;
    tensors.push_back(Json::Object{{"name", t.name},
                                   {"type", t.type->name},
                                   {"rows", t.rows},
                                   {"cols", t.cols},
                                   {"matrices", t.slabs},
                                   {"offset", t.offset},
                                   {"bytes", t.bytes}});
  }
  Json by_type{Json::Object{}};
  for (const auto& [name, sums] : types)
    by_type.Set(name, Json::Object{{"tensors", sums.first}, {"bytes", sums.second}});
  out.Set("types", std::move(by_type));
  out.Set("tensors", std::move(tensors));
  // Long arrays (the vocabulary) are shown by their length.
  Json::Object metadata;  // a file may have a million keys
  for (const auto& [key, value] : file.metadata.as_object()) {
    const bool is_long = value.is_array() && value.as_array().size() > 16;
    metadata.emplace_back(key,
                          is_long ? Json(StrCat("[", value.as_array().size(), " values]")) : value);
  }
  out.Set("metadata", Json(std::move(metadata)));
  return out;
}

void PrintTable(const Json& d, bool tensors) {
  const auto print_object = [](const char* title, const Json& object) {
    std::printf("\n%s\n", title);
    for (const auto& [key, value] : object.as_object()) {
      const std::string text = value.is_string() ? value.as_string() : value.Dump();
      std::printf("  %-42s %s\n", base::EscapeControls(key).c_str(),
                  base::EscapeControls(base::Shorten(text, 100)).c_str());
    }
  };
  std::printf("%s (%s)\n", d.Find("path")->as_string().c_str(),
              d.Find("format")->as_string().c_str());
  if (const Json* config = d.Find("config")) {
    print_object("config", *config);
    std::printf("  %-42s %.1f million\n", "parameters",
                d.Find("num_parameters")->as_double() / 1e6);
  }
  print_object("tokenizer", *d.Find("tokenizer"));
  std::printf("\ntensors: %zu\n", d.Find("tensors")->as_array().size());
  for (const auto& [type, sums] : d.Find("types")->as_object()) {
    std::printf("  %-6s %5lld tensors  %s\n", type.c_str(),
                static_cast<long long>(sums.Find("tensors")->as_int()),
                base::HumanBytes(sums.Find("bytes")->as_double()).c_str());
  }
  if (tensors) {
    for (const Json& t : d.Find("tensors")->as_array()) {
      std::printf(
          "  %-32s %-5s [%lld, %lld]\n", base::EscapeControls(t.Find("name")->as_string()).c_str(),
          t.Find("type")->as_string().c_str(), static_cast<long long>(t.Find("rows")->as_int()),
          static_cast<long long>(t.Find("cols")->as_int()));
    }
  }
  print_object("metadata", *d.Find("metadata"));
}

}  // namespace

Command AddInspect(const OptionSet& set) {
  auto options = std::make_shared<InspectOptions>();
  set.Add("model", options->model, "Model file, folder or built-in name").Required();
  set.Add("--tensors", options->tensors, "List every tensor");
  set.Add("--json", options->json, "One JSON object on standard output");
  return [options]() -> Status {
    ASSIGN_OR_RETURN(const std::string path, model::ResolveModel(options->model));
    ASSIGN_OR_RETURN(const auto file, model::OpenModelOrVocabulary(path));
    const Json description = Describe(*file);
    if (options->json)
      PrintJson(description);
    else
      PrintTable(description, options->tensors);
    return OkStatus();
  };
}

}  // namespace thermocline::tools
