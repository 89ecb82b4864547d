// Checks steps as in an engine: replayed while a sequence grows, and shared by several sequences.
#include <algorithm>
#include <memory>

#include "tests/gpu/attention_cache.h"

namespace thermocline::gpu {
namespace {

// Buffers for a step's tokens, on a stream.
struct StepBuffers {
  const DeviceTokens& q;
  const Array<float>& k;  // also the values
  const Array<int>& positions;
  const DeviceTokens& out;
  const Array<float>& scratch;
  int context;
};
void RotateAndAttend(const kernels::DeviceOps& ops, const AttentionCase& c, const StepBuffers& b,
                     const kernels::DeviceKv& view, kernels::Stream stream) {
  MustDo(ops,
         ops.dense.rotate({.q = b.q.view(),
                           .k = b.k,
                           .v = b.k,
                           .heads = c.heads,
                           .kv_heads = c.kv_heads,
                           .head_dim = c.head_dim,
                           .tokens = c.tokens,
                           .scale = 0.125F,
                           .positions = b.positions,
                           .kv = view},
                          stream),
         "rotate");
  MustDo(ops,
         ops.dense.attention({.q = b.q.view().view(),
                              .heads = c.heads,
                              .kv_heads = c.kv_heads,
                              .head_dim = c.head_dim,
                              .tokens = c.tokens,
                              .context = b.context,
                              .window = c.window,
                              .positions = b.positions,
                              .kv = view,
                              .scratch = b.scratch,
                              .out = b.out.view()},
                             stream),
         "attention");
}

// One token's rotation and attention as a graph.
Check CheckOneReplay(const kernels::DeviceOps& ops, KvType type) {
  const AttentionCase c{type, 4, 2, 64, 1, 63, 3};  // the cache grows into another block
  constexpr int kSteps = 4, kStart = 61;
  const auto x = kernels::RandomFloats(Elements(kSteps, c.heads * c.head_dim), 3),
             kv = kernels::RandomFloats(Elements(kSteps, c.kv_heads * c.head_dim), 4);
  AttentionCase last = c;
  last.tokens = kSteps;
  last.position = kStart;
  const CacheCopies graph_cache(ops, last), plain_cache(ops, last);
  const DeviceTokens q(ops, 1, c.heads * c.head_dim), out(ops, 1, c.heads * c.head_dim);
  Array<float> from(ops, q.x.size()), k(ops, Elements(c.kv_heads, c.head_dim));
  Array<int> positions(ops, 1);
  const int context = kStart + kSteps;
  const Array<float> scratch(ops, kernels::AttentionScratchFloats(1, context, c.heads, c.head_dim));
  const auto step = [&](const CacheCopies& cache, kernels::Stream stream) {
    const auto& run = ops.runtime;
    MustDo(ops, run.copy_on_device(q.x, from, 4 * from.size(), stream), "copying");
    RotateAndAttend(ops, c, {q, k, positions, out, scratch, context}, cache.device(), stream);
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
    positions.Set({kStart + i});
    step(plain_cache, {});
    Wait(ops);
    const auto want = out.x.Get();
    MustDo(ops, ops.runtime.graph_launch(graph, stream), "a graph");
    MustDo(ops, ops.runtime.stream_synchronize(stream), "waiting");
    error += Differing(out.x.Get(), want);
    if (std::all_of(want.begin(), want.end(), [](float y) { return y == 0; })) error = INFINITY;
  }
  MustDo(ops, ops.runtime.graph_destroy(graph), "a graph");
  MustDo(ops, ops.runtime.stream_destroy(stream), "a stream");
  return {"a graph replayed as the sequence grows", Text(c), 0, error};
}

// Rotates, stores and attends `c`'s tokens, whose inputs are rows from `first` on of x and kv;
// returns [T, H Dh].
std::vector<float> Attended(const kernels::DeviceOps& ops, const AttentionCase& c, int first,
                            const std::vector<float>& x, const std::vector<float>& kv,
                            const std::vector<int>& positions,
                            const std::vector<CacheCopies::Table>& tables, kernels::DeviceKv view) {
  const auto rows = [&](const std::vector<float>& all, int heads) {
    const auto begin =
        all.begin() + static_cast<std::ptrdiff_t>(Elements(first * heads, c.head_dim));
    return std::vector<float>(
        begin, begin + static_cast<std::ptrdiff_t>(Elements(c.tokens * heads, c.head_dim)));
  };
  const DeviceTokens q(ops, HostTokens(c.tokens, c.heads * c.head_dim, rows(x, c.heads))),
      out(ops, c.tokens, c.heads * c.head_dim);
  const Array<float> k(ops, rows(kv, c.kv_heads));
  const Array<int> at(ops, positions);
  const Array<CacheCopies::Table> each(ops, tables);
  view.tables = each;
  constexpr int kContext = 700;
  const Array<float> scratch(
      ops, kernels::AttentionScratchFloats(c.tokens, kContext, c.heads, c.head_dim));
  RotateAndAttend(ops, c, {q, k, at, out, scratch, kContext}, view, {});
  Wait(ops);
  return out.x.Get();
}

// Tokens of three sequences in one step have the bits that each sequence has alone.
Check CheckSharedStep(const kernels::DeviceOps& ops, KvType type) {
  AttentionCase c{type, 4, 2, 64, 0, 0, 0};
  constexpr int kTokens[] = {1, 3, 2}, kBefore[] = {600, 62, 0};
  const auto x = kernels::RandomFloats(Elements(6, c.heads * c.head_dim), 3),
             kv = kernels::RandomFloats(Elements(6, c.kv_heads * c.head_dim), 4);
  std::vector<std::unique_ptr<CacheCopies>> alone, shared;
  std::vector<float> want;
  std::vector<int> positions;
  std::vector<CacheCopies::Table> tables;
  for (int s = 0, first = 0; s < 3; first += kTokens[s++]) {
    c.tokens = kTokens[s];
    c.position = kBefore[s];
    for (auto* caches : {&alone, &shared}) caches->push_back(std::make_unique<CacheCopies>(ops, c));
    const auto own = PositionsOf(c);
    const auto got = Attended(ops, c, first, x, kv, own,
                              std::vector<CacheCopies::Table>(own.size(), alone.back()->table()),
                              alone[0]->device());
    want.insert(want.end(), got.begin(), got.end());
    positions.insert(positions.end(), own.begin(), own.end());
    tables.insert(tables.end(), own.size(), shared.back()->table());
  }
  c.tokens = 6;
  double error =
      Differing(Attended(ops, c, 0, x, kv, positions, tables, shared[0]->device()), want);
  for (std::size_t s = 0; s < 3; ++s) error += Differing(shared[s]->Bytes(), alone[s]->Bytes());
  return {"a step of three sequences", Text(c), 0, error};
}

constexpr KvType kTypes[] = {KvType::kF16, KvType::kQ8_0, KvType::kF32};

}  // namespace

std::vector<Check> CheckReplay(const kernels::DeviceOps& ops) {
  std::vector<Check> checks;
  for (const KvType type : kTypes) {
    checks.push_back(CheckOneReplay(ops, type));
    checks.push_back(CheckSharedStep(ops, type));
  }
  return checks;
}

}  // namespace thermocline::gpu
