// `thermocline imatrix`: measures the importance of each matrix column on a text, in llama.cpp's
// format.
#include <algorithm>
#include <cstdio>
#include <map>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/model/gguf/importance.h"
#include "tools/common/console.h"
#include "tools/common/ffn_recorder.h"
#include "tools/common/model_options.h"
#include "tools/common/text_windows.h"

namespace thermocline::tools {
namespace {

struct ImatrixOptions {
  ModelOptions model;
  TextOptions text;
  std::string out;
  bool json = false;
};

// Sums the squares of each matrix's inputs, by the address of its weights.
class Collector final : public nn::ProductTap, public ffn::FfnTap {
 public:
  Collector(const model::Weights& weights, model::Mixer mixer) : down_rows_(weights.layers.size()) {
    for (std::size_t l = 0; l < weights.layers.size(); ++l) {
      Name(weights.layers[l], l);
      NameRecurrent(weights.layers[l].recurrent, mixer, StrCat("blk.", l, "."));
    }
  }

  void OnProduct(const kernels::PackedMatrix& weight, const float* x, int tokens) override {
    auto found = matrices_.upper_bound(weight.data);
    if (found == matrices_.begin()) return;
    --found;
    const Place& place = found->second;
    const std::size_t bytes = weight.data - found->first;
    if (bytes >= place.bytes) return;  // the head, or a router
    model::Importance::Matrix& sums = *place.sums;
    const std::size_t index = bytes * sums.counts.size() / place.bytes;
    float* out = sums.sums.data() + index * sums.columns;
    for (int t = 0; t < tokens; ++t) {
      for (int c = 0; c < sums.columns; ++c) out[c] += x[c] * x[c];
      x += sums.columns;
    }
    sums.counts[index] += static_cast<float>(tokens);
  }
  // All neurons are computed, and in row layout the sample has the inputs of down.
  void OnLayer(const ffn::FfnSample& s) override {
    if (down_rows_[s.layer] == nullptr) return;
    model::Importance::Matrix& sums = *down_rows_[s.layer];
    for (int t = 0; t < s.tokens; ++t) {
      const float* x = s.neurons + base::Area(t, sums.columns);
      for (int c = 0; c < sums.columns; ++c) sums.sums[c] += x[c] * x[c];
    }
    sums.counts[0] += static_cast<float>(s.tokens);
  }

  model::Importance Take() { return std::move(importance_); }

 private:
  struct Place {
    std::size_t bytes;  // of all experts
    model::Importance::Matrix* sums;
  };

  void Add(const std::string& name, const kernels::PackedMatrix& weight, int experts = 1) {
    if (weight.data == nullptr) return;
    model::Importance::Matrix& matrix = importance_.matrices[name + ".weight"];
    matrix.columns = weight.cols;
    matrix.sums.resize(base::Area(experts, weight.cols));
    matrix.counts.resize(experts);
    matrices_[weight.data] = {weight.bytes(), &matrix};
  }

  void Name(const model::LayerWeights& w, std::size_t layer) {
    const std::string p = StrCat("blk.", layer, ".");
    const bool latent = w.latent.kv_a.weight.rows > 0;
    Add(p + (latent && w.latent.q_a.weight.rows > 0 ? "attn_q_b" : "attn_q"), w.q.weight);
    Add(p + "attn_k", w.k.weight);
    Add(p + "attn_v", w.v.weight);
    Add(p + "attn_output", w.attn_output.weight);
    Add(p + "attn_q_a", w.latent.q_a.weight);
    Add(p + "attn_kv_a_mqa", w.latent.kv_a.weight);
    Add(p + "ffn_gate", w.gate.linear.weight);
    Add(p + "ffn_up", w.up.linear.weight);
    Add(p + "ffn_down", w.down.weight);
    Add(p + "laurel_l", w.altup.laurel_left.weight);
    Add(p + "laurel_r", w.altup.laurel_right.weight);
    Add(p + "inp_gate", w.altup.input_gate.weight);
    Add(p + "proj", w.altup.input_proj.weight);
    if (w.down_rows.rows > 0) {
      down_rows_[layer] = &importance_.matrices[p + "ffn_down.weight"];
      *down_rows_[layer] = {w.down_rows.rows, std::vector<float>(w.down_rows.rows), {0}};
    }
    const model::ExpertWeights& e = w.experts;
    const int experts = e.router.weight.rows;
    Add(p + "ffn_gate_exps", e.gate.weight, experts);
    Add(p + "ffn_up_exps", e.up.weight, experts);
    Add(p + "ffn_down_exps", e.down.weight, experts);
    Add(p + "ffn_gate_shexp", e.shared_gate.weight);
    Add(p + "ffn_up_shexp", e.shared_up.weight);
    Add(p + "ffn_down_shexp", e.shared_down.weight);
  }

  void NameRecurrent(const model::RecurrentWeights& w, model::Mixer mixer, const std::string& p) {
    switch (mixer) {
      case model::Mixer::kAttention:
      case model::Mixer::kNone:
        return;
      case model::Mixer::kShortConv:
        Add(p + "shortconv.in_proj", w.in.weight);
        return Add(p + "shortconv.out_proj", w.out.weight);
      case model::Mixer::kMamba2:
        Add(p + "ssm_in", w.in.weight);
        return Add(p + "ssm_out", w.out.weight);
      case model::Mixer::kDeltaNet:
        Add(p + "attn_qkv", w.in.weight);
        Add(p + "attn_gate", w.gate.weight);
        Add(p + "ssm_alpha", w.alpha.weight);
        Add(p + "ssm_beta", w.beta.weight);
        Add(p + "ssm_ba", w.beta_alpha.weight);
        return Add(p + "ssm_out", w.out.weight);
    }
  }

  model::Importance importance_;
  std::map<const std::uint8_t*, Place> matrices_;      // by their first byte
  std::vector<model::Importance::Matrix*> down_rows_;  // [L] or null
};

// Counts experts that no token used, which have no importance.
int CountUnseen(const model::Importance& importance) {
  int unseen = 0;
  for (const auto& [name, matrix] : importance.matrices)
    unseen += static_cast<int>(std::count(matrix.counts.begin(), matrix.counts.end(), 0.0F));
  return unseen;
}

Status Imatrix(const ImatrixOptions& options) {
  RETURN_IF_ERROR(model::Importance::CheckReplaceable(options.out));  // checked before the work
  ASSIGN_OR_RETURN(const auto model, LoadWithProgress(WithMode(options.model, FfnMode::kDense)));
  if (model->device != nullptr || model->memory.tier != load::MemoryPlan::Tier::kMemory)
    return base::FailedPrecondition(
        model->path,
        ": an importance matrix is measured with all weights in memory, on the CPU: "
        "leave out the GPU (--device cpu), or give more memory");
  ASSIGN_OR_RETURN(const auto windows, ReadTextWindows(options.text, *model));
  Collector collector(*model->weights, model->config.recurrent.kind);
  ProgressBar bar("measuring");
  RETURN_IF_ERROR(RunWindows(*model, windows, collector, {}, bar.callback(), &collector));
  bar.Clear();
  model::Importance importance = collector.Take();
  importance.datasets = {options.text.text};
  importance.chunks = base::IntSize(windows);
  importance.chunk_tokens = options.text.window;
  RETURN_IF_ERROR(importance.Write(options.out));
  const int tokens = CountTokens(windows), unseen = CountUnseen(importance);
  if (options.json) {
    PrintJson(Json::Object{{"out", options.out},
                           {"tokens", tokens},
                           {"matrices", importance.matrices.size()},
                           {"unseen", unseen}});
    return OkStatus();
  }
  std::printf("%s: %zu matrices over %d tokens\n", options.out.c_str(), importance.matrices.size(),
              tokens);
  if (unseen > 0)
    std::printf("%d matrices of experts saw no token: a longer text would know them\n", unseen);
  return OkStatus();
}

}  // namespace

Command AddImatrix(const OptionSet& set) {
  auto options = std::make_shared<ImatrixOptions>();
  options->text.window = 512;
  AddModelOptions(set, options->model);
  AddTextOptions(set, options->text);
  set.Add("-o,--out", options->out, "GGUF file to write: llama.cpp reads it, too").Required();
  set.Add("--json", options->json, "One JSON object on standard output");
  return [options] { return Imatrix(*options); };
}

}  // namespace thermocline::tools
