// Storing keys and values, to the bit, and attention to them, within 1e-5 of the largest |value|.
#include "tests/gpu/checks_dense.h"
#include "tests/gpu/dense_inputs.h"

namespace thermocline::gpu {
namespace {

using kernels::kKvBlock;
using kernels::KvType;

struct Case {
  KvType type;
  int heads, kv_heads, head_dim;
  int tokens, position;
  int window;  // 0: none
};

std::string Text(const Case& c) {
  constexpr const char* kNames[] = {"f16", "q8_0", "f32"};
  return std::string(kNames[static_cast<int>(c.type)]) + " heads " + std::to_string(c.heads) + "/" +
         std::to_string(c.kv_heads) + " of " + std::to_string(c.head_dim) + " T" +
         std::to_string(c.tokens) + " at " + std::to_string(c.position) +
         (c.window > 0 ? " window " + std::to_string(c.window) : "");
}

// The same cache here and on the device. Blocks lie in reverse order; each begins with the bytes of
// another layer.
class Cache {
 public:
  static constexpr std::size_t kAhead = 64;

  Cache(const kernels::DeviceOps& ops, const Case& c)
      : case_(c),
        count_((c.position + c.tokens + kKvBlock - 1) / kKvBlock),
        key_bytes_(kernels::KeyBlockBytes(c.type, c.head_dim)),
        stride_(key_bytes_ + kernels::ValueBlockBytes(c.type, c.head_dim)),
        block_bytes_(kAhead + stride_ * static_cast<std::size_t>(c.kv_heads)),
        host_(block_bytes_ * static_cast<std::size_t>(count_)),
        device_(ops, host_.size()),
        pointers_(ops, static_cast<std::size_t>(count_)) {
    std::vector<std::uint8_t*> there;
    for (int i = count_ - 1; i >= 0; --i) {
      here_.push_back(host_.data() + static_cast<std::size_t>(i) * block_bytes_);
      there.push_back(device_.get() + static_cast<std::size_t>(i) * block_bytes_);
    }
    pointers_.Set(there);
  }

  void Store(int position, int head, const float* key, const float* value) {
    std::uint8_t* at = host_.data() +
                       static_cast<std::size_t>(count_ - 1 - position / kKvBlock) * block_bytes_ +
                       keys_offset(head);
    kernels::StoreKeyAndValue({.type = case_.type,
                               .head_dim = case_.head_dim,
                               .slot = position % kKvBlock,
                               .key = key,
                               .value = value,
                               .keys = at,
                               .values = at + key_bytes_});
  }
  void Upload() { device_.Set(host_); }
  double DifferingBytes() const { return Differing(device_.Get(), host_); }

  std::size_t keys_offset(int head) const {
    return kAhead + static_cast<std::size_t>(head) * stride_;
  }
  std::size_t values_offset(int head) const { return keys_offset(head) + key_bytes_; }
  const std::uint8_t* const* blocks() const { return here_.data(); }
  kernels::DeviceKv device() const {
    return {case_.type, pointers_, keys_offset(0), values_offset(0), stride_};
  }

 private:
  const Case case_;
  const int count_;
  const std::size_t key_bytes_, stride_, block_bytes_;
  std::vector<std::uint8_t> host_;
  std::vector<const std::uint8_t*> here_;
  Array<std::uint8_t> device_;
  Array<std::uint8_t*> pointers_;
};

struct Rotation {
  bool rotary, halves, norm, rms;
};

Check CheckOneRotation(const kernels::DeviceOps& ops, const Case& c, const Rotation& r) {
  const int dh = c.head_dim, rope_dim = dh >= 16 ? dh - 8 : dh, half = rope_dim / 2;
  const auto& cpu = kernels::ReferenceOps();
  HostTokens q(c.tokens, c.heads * dh, kernels::RandomFloats(Elements(c.tokens, c.heads * dh), 3));
  auto k = kernels::RandomFloats(Elements(c.tokens, c.kv_heads * dh), 4);
  const auto v = kernels::RandomFloats(k.size(), 5);
  const auto norms = kernels::RandomFloats(static_cast<std::size_t>(4 * dh), 6);
  const auto cos = kernels::RandomFloats(Elements(c.position + c.tokens, half), 8),
             sin = kernels::RandomFloats(cos.size(), 9);
  const float scale = 1.0F / std::sqrt(static_cast<float>(dh));
  Cache cache(ops, c);
  const DeviceTokens dq(ops, q);
  const Array<float> dk(ops, k), dv(ops, v), dnorms(ops, norms), dcos(ops, cos), dsin(ops, sin);
  const Array<int> position(ops, std::vector<int>{c.position});

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
                           .position = position,
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
void Attend(const Case& c, const Cache& cache, const kernels::Activations& q, int kv_head,
            int position, float* out) {
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

Check CheckOneAttention(const kernels::DeviceOps& ops, const Case& c) {
  const int dh = c.head_dim, total = c.position + c.tokens, group = c.heads / c.kv_heads;
  Cache cache(ops, c);
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
  const int context = total + 300;  // the grid is for more than there is
  const DeviceTokens dq(ops, q), out(ops, c.tokens, q.cols);
  const Array<int> position(ops, std::vector<int>{c.position});
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
                              .position = position,
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

// One token's rotation and attention as a graph.
Check CheckOneReplay(const kernels::DeviceOps& ops, KvType type) {
  const Case c{type, 4, 2, 64, 1, 63, 0};  // the cache grows into another block
  constexpr int kSteps = 4, kStart = 61;
  const auto x = kernels::RandomFloats(Elements(kSteps, c.heads * c.head_dim), 3),
             kv = kernels::RandomFloats(Elements(kSteps, c.kv_heads * c.head_dim), 4);
  Case last = c;
  last.tokens = kSteps;
  last.position = kStart;
  const Cache graph_cache(ops, last), plain_cache(ops, last);
  const DeviceTokens q(ops, 1, c.heads * c.head_dim), out(ops, 1, c.heads * c.head_dim);
  Array<float> from(ops, q.x.size()), k(ops, Elements(c.kv_heads, c.head_dim));
  Array<int> position(ops, 1);
  const int context = kStart + kSteps;
  const Array<float> scratch(ops, kernels::AttentionScratchFloats(1, context, c.heads, c.head_dim));
  const auto step = [&](const Cache& cache, kernels::Stream stream) {
    const auto& run = ops.runtime;
    MustDo(ops, run.copy_on_device(q.x, from, 4 * from.size(), stream), "copying");
    MustDo(ops,
           ops.dense.rotate({.q = q.view(),
                             .k = k,
                             .v = k,
                             .heads = c.heads,
                             .kv_heads = c.kv_heads,
                             .head_dim = c.head_dim,
                             .tokens = 1,
                             .scale = 0.125F,
                             .position = position,
                             .kv = cache.device()},
                            stream),
           "rotate");
    MustDo(ops,
           ops.dense.attention({.q = q.view().view(),
                                .heads = c.heads,
                                .kv_heads = c.kv_heads,
                                .head_dim = c.head_dim,
                                .tokens = 1,
                                .context = context,
                                .window = 3,
                                .position = position,
                                .kv = cache.device(),
                                .scratch = scratch,
                                .out = out.view()},
                               stream),
           "attention");
  };
  kernels::Stream stream;
  kernels::Graph graph;
  MustDo(ops, ops.runtime.stream_create(&stream), "a stream");
  MustDo(ops, ops.runtime.graph_begin(stream), "capturing");
  step(graph_cache, stream);
  MustDo(ops, ops.runtime.graph_end(stream, &graph), "capturing");
  double error = 0;
  for (int i = 0; i < kSteps; ++i) {
    const auto slice = [&](const std::vector<float>& all, std::size_t n) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(n) * i;
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(n));
    };
    from.Set(slice(x, from.size()));
    k.Set(slice(kv, k.size()));
    position.Set({kStart + i});
    step(plain_cache, {});
    Wait(ops);
    const auto want = out.x.Get();
    MustDo(ops, ops.runtime.graph_launch(graph, stream), "a graph");
    MustDo(ops, ops.runtime.stream_synchronize(stream), "waiting");
    error += Differing(out.x.Get(), want);
    if (want == std::vector<float>(want.size(), 0.0F)) error = INFINITY;
  }
  MustDo(ops, ops.runtime.graph_destroy(graph), "a graph");
  MustDo(ops, ops.runtime.stream_destroy(stream), "a stream");
  return {"a graph replayed as the sequence grows", Text(c), 0, error};
}

constexpr KvType kTypes[] = {KvType::kF16, KvType::kQ8_0, KvType::kF32};

}  // namespace

std::vector<Check> CheckRotate(const kernels::DeviceOps& ops) {
  std::vector<Check> checks;
  for (const KvType type : kTypes) {
    for (const int position : {0, 61}) {
      const Case c{type, 4, 2, 64, 5, position, 0};
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

std::vector<Check> CheckReplay(const kernels::DeviceOps& ops) {
  std::vector<Check> checks;
  for (const KvType type : kTypes) checks.push_back(CheckOneReplay(ops, type));
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
