#include "tools/synth/synth_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/index.h"
#include "tools/synth/synth_recurrent.h"
#include "tools/synth/synth_vocabulary.h"

namespace thermocline::tools {
namespace {

constexpr int kTopicTokens = 64;     // tokens per topic, neighbors by id
constexpr int kClusterNeurons = 32;  // neurons per cluster
constexpr double kFrequencyMax = 0.98;
// Moments of the positive part of a standard normal.
constexpr double kReluMean = 0.3989423, kReluDeviation = 0.5838190;
// Limits the tilt: neurons that are rarer than a small rank can express become less rare.
constexpr double kTiltMax = 0.98;

// Numbers that depend only on their position, so that rows can be computed in any order.
std::uint64_t Mix(std::uint64_t x) {  // Source: splitmix64
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

// Approximately standard normal: the sum of four uniform 16-bit numbers.
float Normal(std::uint64_t stream, std::uint64_t index) {
  const std::uint64_t bits = Mix(stream ^ Mix(index));
  const auto sum = static_cast<float>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                      (bits >> 32 & 0xFFFF) + (bits >> 48));
  return (sum / 65536.0F - 2.0F) * 1.7320508F;
}

int HeadDim(const SynthParams& p) { return p.head_dim > 0 ? p.head_dim : p.hidden_size / p.heads; }

double NormalTail(double t) { return 0.5 * std::erfc(t / std::sqrt(2.0)); }

// Returns t with NormalTail(t) = p.
double TailThreshold(double p) {
  double low = -8, high = 8;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (NormalTail(middle) > p ? low : high) = middle;
  }
  return (low + high) / 2;
}

// Returns min(kFrequencyMax, s rank^-zipf), with s such that the mean is `active`.
std::vector<double> ZipfFrequencies(int n, double active, double zipf) {
  std::vector<double> out(n);
  double low = 0, high = 1e12;
  for (int step = 0; step < 200; ++step) {
    const double scale = (low + high) / 2;
    double mean = 0;
    for (int i = 0; i < n; ++i) {
      auto& f = out[i];
      f = std::min(kFrequencyMax, scale * std::pow(i + 1.0, -zipf));
      mean += f / n;
    }
    (mean < active ? low : high) = scale;
  }
  return out;
}

// P(two standard normals with correlation r both exceed t).
double BothExceed(double t, double r) {
  constexpr int kSteps = 160;
  double sum = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double z = -8 + 16 * (i + 0.5) / kSteps;
    const double tail = NormalTail((t - std::sqrt(r) * z) / std::sqrt(1 - r));
    sum += std::exp(-z * z / 2) * tail * tail;
  }
  return sum * 16 / kSteps / std::sqrt(2 * M_PI);
}

// The share of active neurons that stay active when inputs correlate by r.
double ReuseAt(const std::vector<double>& frequencies, double r) {
  const std::size_t step = std::max<std::size_t>(1, frequencies.size() / 64);
  double both = 0, one = 0;
  for (std::size_t i = step / 2; i < frequencies.size(); i += step) {
    both += BothExceed(TailThreshold(frequencies[i]), r);
    one += frequencies[i];
  }
  return both / one;
}

Result<double> SolveCorrelation(const std::vector<double>& frequencies, double reuse) {
  double low = 0, high = 0.99;
  const double least = ReuseAt(frequencies, low), most = ReuseAt(frequencies, high);
  if (reuse < least || reuse > most) {
    return base::InvalidArgument("--reuse ", reuse,
                                 " cannot be met: with these frequencies it "
                                 "lies in [",
                                 least, ", ", most, "]");
  }
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (ReuseAt(frequencies, middle) < reuse ? low : high) = middle;
  }
  return (low + high) / 2;
}

// The data that all row sources share.
struct Recipe {
  SynthParams p;
  float shared = 0, own = 0;                   // weights of the topic's and the token's parts
  std::vector<std::vector<float>> thresholds;  // [L][F]
  std::vector<std::vector<int>> clusters;      // [L][F]

  std::uint64_t Stream(std::uint64_t kind, std::uint64_t a = 0, std::uint64_t b = 0) const {
    return Mix(p.seed ^ Mix(kind ^ Mix(a ^ Mix(b))));
  }
  // Dimension 0 is constant; the rest is close to a unit normal.
  void Embedding(std::int64_t token, std::span<float> out) const {
    const std::uint64_t topic = token / kTopicTokens;
    const std::uint64_t of_topic = Stream(1, topic), of_token = Stream(2, token);
    out[0] = 1;
    for (std::size_t i = 1; i < out.size(); ++i)
      out[i] = shared * Normal(of_topic, i) + own * Normal(of_token, i);
  }
  // Token n is predicted by the own part of token n - 1.
  void Head(std::int64_t token, std::span<float> out) const {
    const std::int64_t before = (token + p.vocab_size - 1) % p.vocab_size;
    const std::uint64_t of_token = Stream(2, before);
    const float scale = 1.0F / std::sqrt(static_cast<float>(p.hidden_size));
    out[0] = 0;
    for (std::size_t i = 1; i < out.size(); ++i) out[i] = scale * Normal(of_token, i);
  }
  void Gate(int layer, std::int64_t neuron, std::span<float> out) const {
    const std::size_t l = layer, n = neuron;
    const auto k = static_cast<float>(p.co_activation);
    const std::uint64_t cluster = Stream(3, l, clusters[l][n]);
    const std::uint64_t alone = Stream(4, l, n);
    const float scale = 1.0F / std::sqrt(static_cast<float>(p.hidden_size - 1));
    out[0] = -thresholds[l][n];
    for (std::size_t i = 1; i < out.size(); ++i)
      out[i] = scale * (std::sqrt(k) * Normal(cluster, i) + std::sqrt(1 - k) * Normal(alone, i));
  }
  void PredictorIn(int layer, std::int64_t row, std::span<float> out) const {
    Plain(16, layer, row, 1, out);
    out[0] = 0;  // the constant dimension
  }
  void PredictorOut(int layer, std::int64_t neuron, std::span<float> out) const {
    const std::size_t l = layer, n = neuron;
    const std::uint64_t stream = Stream(17, l, n);
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = Normal(stream, i);
      sum += out[i];
      squares += out[i] * out[i];
    }
    const double rank = base::IntSize(out);
    const double mean = sum / rank, deviation = std::sqrt(squares / rank - mean * mean);
    const double tc = std::clamp(thresholds[l][n] * kReluDeviation / kReluMean / std::sqrt(rank),
                                 -kTiltMax, kTiltMax);
    const double shift = -tc / std::sqrt(1 - tc * tc);
    for (float& value : out)
      value = static_cast<float>(((value - mean) / deviation + shift) / std::sqrt(rank));
  }
  void Plain(std::uint64_t kind, int layer, std::int64_t row, float gain,
             std::span<float> out) const {
    const std::uint64_t stream = Stream(kind, layer, row);
    const float scale = gain / std::sqrt(static_cast<float>(out.size()));
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = scale * Normal(stream, i);
  }
};

Json LayerTruth(const std::vector<double>& frequency, const std::vector<int>& clusters) {
  Json::Array f, c;
  for (const double value : frequency) f.push_back(std::round(value * 1e6) / 1e6);
  for (const int value : clusters) c.push_back(value);
  return Json::Object{{"frequency", std::move(f)}, {"cluster", std::move(c)}};
}

// Assigns the ranks to neurons in a random order for each layer.
Json::Array PlanLayers(const std::vector<double>& frequencies, Recipe& recipe) {
  Json::Array truth;
  const int neurons = base::IntSize(frequencies);
  for (int layer = 0; layer < recipe.p.layers; ++layer) {
    const auto& given = recipe.p.routing;
    const std::vector<double>& by_rank = given.empty() ? frequencies : given[layer % given.size()];
    std::vector<int> order(by_rank.size());
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = given.empty() ? order.size() : 0; i > 1; --i) {
      const std::uint64_t random = Mix(recipe.Stream(5, layer, i));
      std::swap(order[i - 1], order[random % i]);
    }
    std::vector<double> frequency;
    auto& thresholds = recipe.thresholds.emplace_back();
    auto& clusters = recipe.clusters.emplace_back();
    for (const int rank : order) {
      frequency.push_back(by_rank[rank]);
      thresholds.push_back(static_cast<float>(TailThreshold(frequency.back())));
      const std::uint64_t random = Mix(recipe.Stream(6, layer, rank));
      clusters.push_back(static_cast<int>(random % std::max(1, neurons / kClusterNeurons)));
    }
    truth.push_back(LayerTruth(frequency, clusters));
  }
  return truth;
}

// Adds a router whose choices have the planned frequencies, and random experts.
void AddExperts(const std::shared_ptr<const Recipe>& r, int layer, model::ModelFile& file) {
  const SynthParams& p = r->p;
  const int e = p.experts, d = p.hidden_size, f = p.intermediate_size;
  const std::string prefix = StrCat("blk.", layer, ".");
  const auto plain = [&](const char* name, std::uint64_t kind, int rows, int cols, float gain) {
    file.AddMatrices(prefix + name, e, rows, cols,
                     [r, kind, layer, gain](std::int64_t row, std::span<float> out) {
                       r->Plain(kind, layer, row, gain, out);
                       return OkStatus();
                     });
  };
  file.AddMatrix(prefix + "ffn_gate_inp.weight", e, d,
                 [r, layer](std::int64_t row, std::span<float> out) {
                   r->Gate(layer, row, out);
                   return OkStatus();
                 });
  plain("ffn_gate_exps.weight", 18, f, d, 1);
  plain("ffn_up_exps.weight", 14, f, d, 1);
  plain("ffn_down_exps.weight", 15, d, f, kQuiet);
}

// Adds the tensors that only OPT has, all of them 0.
void AddOptParts(model::ModelFile& file) {
  const model::ModelConfig& c = file.config;
  const std::vector<float> zeros(c.hidden_size);
  for (int l = 0; l < c.num_hidden_layers; ++l)
    for (const char* norm : {"attn_norm", "ffn_norm"})
      file.AddVector(StrCat("blk.", l, ".", norm, ".bias"), zeros);
  file.AddVector("output_norm.bias", zeros);
  file.AddMatrix("position_embd.weight",
                 c.max_position_embeddings + c.architecture->position_offset, c.hidden_size,
                 [](std::int64_t, std::span<float> out) {
                   std::fill(out.begin(), out.end(), 0.0F);
                   return OkStatus();
                 });
}

void AddTensors(const std::shared_ptr<const Recipe>& r, model::ModelFile& file) {
  const SynthParams& p = r->p;
  const int d = p.hidden_size, f = p.intermediate_size;
  const int q = HeadDim(p) * p.heads, kv = HeadDim(p) * p.kv_heads;
  const std::vector<float> ones(d, 1.0F);
  const model::Architecture& architecture = *file.config.architecture;
  file.AddMatrix("token_embd.weight", p.vocab_size, d, [r](std::int64_t row, std::span<float> out) {
    r->Embedding(row, out);
    return OkStatus();
  });
  for (int l = 0; l < p.layers; ++l) {
    const std::string prefix = StrCat("blk.", l, ".");
    const auto plain = [&](const char* name, std::uint64_t kind, int rows, int cols, float gain) {
      file.AddMatrix(prefix + name, rows, cols,
                     [r, kind, l, gain](std::int64_t row, std::span<float> out) {
                       r->Plain(kind, l, row, gain, out);
                       return OkStatus();
                     });
    };
    file.AddVector(prefix + "attn_norm.weight", ones);
    if (file.config.recurrent.has_state(l)) {
      AddRecurrent(plain, prefix, file);
    } else {
      plain("attn_q.weight", 10,
            (architecture.output_gate == model::OutputGate::kOfQuery ? 2 : 1) * q, d, 1);
      plain("attn_k.weight", 11, kv, d, 1);
      plain("attn_v.weight", 12, kv, d, 1);
      plain("attn_output.weight", 13, d, q, kQuiet);
      for (const char* norm : {"attn_q_norm.weight", "attn_k_norm.weight"})
        if (architecture.head_norm)
          file.AddVector(prefix + norm, std::vector<float>(HeadDim(p), 1.0F));
    }
    file.AddVector(StrCat(prefix, architecture.ffn_norm, ".weight"), ones);
    if (p.experts > 0) {
      AddExperts(r, l, file);
      AddSharedExpert(plain, prefix, file);
      continue;
    }
    file.AddMatrix(prefix + (p.opt ? "ffn_up.weight" : "ffn_gate.weight"), f, d,
                   [r, l](std::int64_t row, std::span<float> out) {
                     r->Gate(l, row, out);
                     return OkStatus();
                   });
    if (!p.opt) plain("ffn_up.weight", 14, f, d, 1);
    plain("ffn_down.weight", 15, d, f, kQuiet);
    if (p.predictor_rank == 0) continue;
    file.AddMatrix(prefix + "fc1.weight", p.predictor_rank, d,
                   [r, l](std::int64_t row, std::span<float> out) {
                     r->PredictorIn(l, row, out);
                     return OkStatus();
                   });
    file.AddMatrix(prefix + "fc2.weight", f, p.predictor_rank,
                   [r, l](std::int64_t row, std::span<float> out) {
                     r->PredictorOut(l, row, out);
                     return OkStatus();
                   });
  }
  if (p.opt) AddOptParts(file);
  file.AddVector(StrCat(architecture.output_norm, ".weight"), ones);
  file.AddMatrix("output.weight", p.vocab_size, d, [r](std::int64_t row, std::span<float> out) {
    r->Head(row, out);
    return OkStatus();
  });
}

Status CheckExperts(const SynthParams& p) {
  if (p.experts == 0) return OkStatus();
  if (p.experts_used < 1 || p.experts_used > p.experts)
    return base::InvalidArgument("--experts-used ", p.experts_used, ": 1 to --experts ", p.experts);
  if (p.predictor_rank > 0)
    return base::InvalidArgument("--experts ", p.experts, " has no predictors: without --rank");
  return OkStatus();
}

Result<model::ModelConfig> MakeConfig(const SynthParams& p) {
  RETURN_IF_ERROR(CheckExperts(p));
  if (p.heads < 1 || (p.head_dim == 0 && p.hidden_size % p.heads != 0))
    return base::InvalidArgument("--hidden-size ", p.hidden_size, " is no multiple of --heads ",
                                 p.heads);
  if (p.vocab_size < 260)
    return base::InvalidArgument("--vocab ", p.vocab_size,
                                 ": at least 260, for control tokens and bytes");
  model::ModelConfig c;
  if (p.mixer != model::Mixer::kAttention && (p.opt || p.predictor_rank > 0))
    return base::InvalidArgument("--mixer has neither --family opt nor predictors");
  if (p.opt && (p.experts > 0 || p.predictor_rank > 0))
    return base::InvalidArgument("--family opt has neither experts nor predictors in its file");
  ASSIGN_OR_RETURN(c.architecture, model::FindArchitecture(FamilyOf(p)));
  c.hidden_size = p.hidden_size;
  c.intermediate_size = p.intermediate_size;
  c.num_hidden_layers = p.layers;
  c.num_attention_heads = p.heads;
  c.num_key_value_heads = p.kv_heads;
  c.head_dim = c.rope.dim = HeadDim(p);
  c.vocab_size = p.vocab_size;
  c.max_position_embeddings = p.context_length;
  c.hidden_act = p.experts > 0 ? model::Activation::kSilu : model::Activation::kRelu;
  c.experts = {.num_experts = p.experts,
               .num_experts_per_tok = p.experts_used,
               .intermediate_size = p.experts > 0 ? p.intermediate_size : 0,
               .router = c.architecture->router};
  if (p.predictor_rank > 0) c.sparse_threshold = 0;
  SetMixers(p, c);
  RETURN_IF_ERROR(ValidateConfig(c));
  return c;
}

}  // namespace

Result<SynthModel> MakeSynthModel(const SynthParams& p) {
  SynthModel out{std::make_unique<model::ModelFile>(), Json()};
  ASSIGN_OR_RETURN(out.file->config, MakeConfig(p));
  const auto frequencies =
      !p.routing.empty() ? p.routing.front()
      : p.experts > 0 ? ZipfFrequencies(p.experts, 1.0 * p.experts_used / p.experts, p.routing_zipf)
                      : ZipfFrequencies(p.intermediate_size, p.active, p.zipf);
  ASSIGN_OR_RETURN(const double correlation, SolveCorrelation(frequencies, p.reuse));
  auto recipe = std::make_shared<Recipe>();
  recipe->p = p;
  recipe->shared = static_cast<float>(std::sqrt(correlation));
  recipe->own = static_cast<float>(std::sqrt(1 - correlation));
  Json::Array layers = PlanLayers(frequencies, *recipe);
  out.truth = Json::Object{{"active", p.active},
                           {"zipf", p.zipf},
                           {"reuse", p.reuse},
                           {"co_activation", p.co_activation},
                           {"input_correlation", correlation},
                           {"topic_tokens", kTopicTokens},
                           {"predictor_rank", p.predictor_rank},
                           {"experts", p.experts},
                           {"experts_used", p.experts_used},
                           {"routing_zipf", p.routing_zipf},
                           {"seed", p.seed},
                           {"layers", std::move(layers)}};
  out.file->path = "synthetic model";
  out.file->format = "synthetic";
  out.file->has_weights = true;
  out.file->vocabulary = MakeVocabulary(p.vocab_size);
  AddTensors(recipe, *out.file);
  return out;
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): `out.file` moves into the Result

}  // namespace thermocline::tools
