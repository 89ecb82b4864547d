// Checks storing into the KV cache, to the bit, and attention, within 1e-5 of the largest |value|.
#include "tests/gpu/attention_cache.h"

namespace thermocline::gpu {
namespace {

struct Rotation {
  bool rotary, halves, norm, rms;
};

Check CheckOneRotation(const kernels::DeviceOps& ops, const AttentionCase& c, const Rotation& r) {
  const int dh = c.head_dim, rope_dim = dh >= 16 ? dh - 8 : dh, half = rope_dim / 2;
  const auto& cpu = kernels::ReferenceOps();
  HostTokens q(c.tokens, c.heads * dh, kernels::RandomFloats(Elements(c.tokens, c.heads * dh), 3));
  auto k = kernels::RandomFloats(Elements(c.tokens, c.kv_heads * dh), 4);
  const auto v = kernels::RandomFloats(k.size(), 5);
  const auto norms = kernels::RandomFloats(static_cast<std::size_t>(4 * dh), 6);
  const auto cos = kernels::RandomFloats(Elements(c.position + c.tokens, half), 8),
             sin = kernels::RandomFloats(cos.size(), 9);
  const float scale = 1.0F / std::sqrt(static_cast<float>(dh));
  CacheCopies cache(ops, c);
  const DeviceTokens dq(ops, q);
  const Array<float> dk(ops, k), dv(ops, v), dnorms(ops, norms), dcos(ops, cos), dsin(ops, sin);
  const Array<int> positions(ops, PositionsOf(c));

  const auto norm = [&](float* head, const float* weight) {
    if (r.rms) return cpu.rms_norm({head, weight, dh, 1e-5F, head});
    cpu.layer_norm({head, weight, weight + 2 * dh, dh, 1e-5F, head});
  };
  for (int t = 0; t < c.tokens; ++t) {
    float* qt = q.x.data() + Elements(t, c.heads * dh);
    float* kt = k.data() + Elements(t, c.kv_heads * dh);
    if (r.norm) {
      for (int h = 0; h < c.heads; ++h) norm(qt + h * dh, norms.data());
      for (int h = 0; h < c.kv_heads; ++h) norm(kt + h * dh, norms.data() + dh);
    }
    if (r.rotary) {
      const std::size_t at = Elements(c.position + t, half);
      cpu.rope({qt, c.heads, dh, rope_dim, cos.data() + at, sin.data() + at, r.halves});
      cpu.rope({kt, c.kv_heads, dh, rope_dim, cos.data() + at, sin.data() + at, r.halves});
    }
    for (int i = 0; i < c.heads * dh; ++i) qt[i] *= scale;
    for (int h = 0; h < c.kv_heads; ++h)
      cache.Store(c.position + t, h, kt + h * dh, v.data() + Elements(t * c.kv_heads + h, dh));
  }
  q.Quantize();
  const float* weights = r.norm ? dnorms.get() : nullptr;
  const bool biases = r.norm && !r.rms;
  MustDo(ops,
         ops.dense.rotate({.q = dq.view(),
                           .k = dk,
                           .v = dv,
                           .heads = c.heads,
                           .kv_heads = c.kv_heads,
                           .head_dim = dh,
                           .tokens = c.tokens,
                           .q_norm = weights,
                           .k_norm = r.norm ? weights + dh : nullptr,
                           .q_norm_bias = biases ? weights + 2 * dh : nullptr,
                           .k_norm_bias = biases ? weights + 3 * dh : nullptr,
                           .rms = r.rms,
                           .eps = 1e-5F,
                           .cos = r.rotary ? dcos.get() : nullptr,
                           .sin = r.rotary ? dsin.get() : nullptr,
                           .rope_dim = rope_dim,
                           .halves = r.halves,
                           .scale = scale,
                           .positions = positions,
                           .kv = cache.device()},
                          {}),
         "rotate");
  Wait(ops);
  double error = Differing(dq.x.Get(), q.x) + cache.DifferingBytes();
  if (c.type == KvType::kQ8_0) error += DifferingQ8(dq, q);
  return {std::string("rotate and store") + (r.halves ? ", halves" : "") +
              (r.norm ? r.rms ? ", rms norm" : ", layer norm" : "") +
              (r.rotary ? "" : ", no rotation"),
          Text(c), 0, error};
}

// Attention of one token and kv head by the reference, chunk by chunk.
void Attend(const AttentionCase& c, const CacheCopies& cache, const kernels::Activations& q,
            int kv_head, int position, float* out) {
  const int group = c.heads / c.kv_heads;
  struct State {
    std::vector<float> max, total, out;
    State(int g, int dh) : max(static_cast<std::size_t>(g)), total(max), out(Elements(g, dh)) {}
    kernels::AttentionState view() { return {max.data(), total.data(), out.data()}; }
  };
  State all(group, c.head_dim), part(group, c.head_dim);
  std::vector<float> scores(Elements(group, kKvBlock));
  const int first = c.window > 0 ? std::max(0, position + 1 - c.window) : 0;
  for (int begin = first; begin <= position;) {
    const int end =
        std::min(position + 1, (begin / kernels::kAttentionChunk + 1) * kernels::kAttentionChunk);
    State& state = begin == first ? all : part;
    const kernels::PositionSpan span{begin, end};
    kernels::ReferenceOps().attention({.q = q,
                                       .group = group,
                                       .head_dim = c.head_dim,
                                       .type = c.type,
                                       .blocks = cache.blocks(),
                                       .keys_offset = cache.keys_offset(kv_head),
                                       .values_offset = cache.values_offset(kv_head),
                                       .spans = &span,
                                       .scores = scores.data(),
                                       .state = state.view()});
    if (begin != first) kernels::MergeAttention(part.view(), group, c.head_dim, all.view());
    begin = end;
  }
  kernels::FinishAttention(all.view(), group, c.head_dim, nullptr, out);
}

Check CheckOneAttention(const kernels::DeviceOps& ops, const AttentionCase& c) {
  const int dh = c.head_dim, total = c.position + c.tokens, group = c.heads / c.kv_heads;
  CacheCopies cache(ops, c);
  const auto k = kernels::RandomFloats(Elements(total * c.kv_heads, dh), 4),
             v = kernels::RandomFloats(k.size(), 5);
  float largest = 0;
  for (const float x : v) largest = std::max(largest, std::fabs(x));
  for (int s = 0; s < total; ++s) {
    for (int h = 0; h < c.kv_heads; ++h) {
      const std::size_t at = Elements(s * c.kv_heads + h, dh);
      cache.Store(s, h, k.data() + at, v.data() + at);
    }
  }
  cache.Upload();
  const HostTokens q(c.tokens, c.heads * dh,
                     kernels::RandomFloats(Elements(c.tokens, c.heads * dh), 3, 0.3F));
  std::vector<float> want(q.x.size());
  for (int t = 0; t < c.tokens; ++t) {
    for (int h = 0; h < c.kv_heads; ++h) {
      const std::size_t at = Elements(t * c.heads + h * group, dh);
      kernels::Activations head = q.view();
      head.x += at;
      head.q += at;
      head.scale += at / 32;
      head.cols = dh;
      Attend(c, cache, head, h, c.position + t, want.data() + at);
    }
  }
  const int context = total + 300;  // the grid is larger than needed
  const DeviceTokens dq(ops, q), out(ops, c.tokens, q.cols);
  const Array<int> positions(ops, PositionsOf(c));
  const Array<float> scratch(ops, kernels::AttentionScratchFloats(c.tokens, context, c.heads, dh));
  const bool q8 = q.cols % 32 == 0;
  MustDo(ops,
         ops.dense.attention({.q = dq.view().view(),
                              .heads = c.heads,
                              .kv_heads = c.kv_heads,
                              .head_dim = dh,
                              .tokens = c.tokens,
                              .context = context,
                              .window = c.window,
                              .positions = positions,
                              .kv = cache.device(),
                              .scratch = scratch,
                              .out = out.view(q8)},
                             {}),
         "attention");
  Wait(ops);
  const auto got = out.x.Get();
  double error = Farthest(got, want, std::vector<double>(got.size(), static_cast<double>(largest)));
  if (q8 && DifferingQ8(out, HostTokens(c.tokens, q.cols, got)) > 0) error = INFINITY;
  return {"attention", Text(c), 1e-5, error};
}

constexpr KvType kTypes[] = {KvType::kF16, KvType::kQ8_0, KvType::kF32};

}  // namespace

std::vector<Check> CheckRotate(const kernels::DeviceOps& ops) {
  std::vector<Check> checks;
  for (const KvType type : kTypes) {
    for (const int position : {0, 61}) {
      const AttentionCase c{type, 4, 2, 64, 5, position, 0};
      checks.push_back(CheckOneRotation(ops, c, {true, false, false, true}));
      checks.push_back(CheckOneRotation(ops, c, {true, true, true, true}));
      checks.push_back(CheckOneRotation(ops, c, {true, true, true, false}));
      checks.push_back(CheckOneRotation(ops, c, {false, false, false, true}));
    }
    checks.push_back(CheckOneRotation(ops, {type, 2, 2, 512, 1, 100, 0}, {true, true, true, true}));
    if (type == KvType::kQ8_0) continue;
    checks.push_back(CheckOneRotation(ops, {type, 3, 1, 20, 3, 14, 0}, {true, false, true, true}));
  }
  return checks;
}

std::vector<Check> CheckAttention(const kernels::DeviceOps& ops, bool large) {
  std::vector<Check> checks;
  for (const KvType type : kTypes) {
    for (const auto& [heads, kv_heads] : {std::pair{2, 2}, {6, 2}, {4, 1}, {11, 1}}) {
      for (const int position : {0, 62, 254, 600})
        checks.push_back(CheckOneAttention(ops, {type, heads, kv_heads, 64, 3, position, 0}));
    }
    for (const int window : {1, 100, 300})
      checks.push_back(CheckOneAttention(ops, {type, 4, 2, 64, 3, 600, window}));
    for (const int head_dim : {32, 96, 128, 256, 512})
      checks.push_back(CheckOneAttention(ops, {type, 4, 2, head_dim, 1, 300, 0}));
    if (type != KvType::kQ8_0) {
      checks.push_back(CheckOneAttention(ops, {type, 3, 1, 20, 2, 270, 0}));
      checks.push_back(CheckOneAttention(ops, {type, 3, 1, 34, 2, 270, 0}));
    }
    if (!large) continue;
    checks.push_back(CheckOneAttention(ops, {type, 32, 32, 128, 1, 2000, 0}));
    checks.push_back(CheckOneAttention(ops, {type, 32, 8, 128, 16, 1000, 0}));
  }
  return checks;
}

}  // namespace thermocline::gpu
