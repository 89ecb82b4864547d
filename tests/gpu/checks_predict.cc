// Checks prediction, lists and the hand-off.
#include <thread>

#include "engine/base/stopwatch.h"
#include "tests/gpu/checks_sparse.h"
#include "tests/gpu/sparse_inputs.h"

namespace thermocline::gpu {
namespace {

using kernels::DeviceOps;

struct SignShape {
  int neurons, cols, slices, tokens;
  bool two_planes, by_slot, gather;
};

Check CheckSigns(const DeviceOps& ops, const SignShape& s) {
  const auto line = static_cast<std::size_t>(kernels::SignWords(s.cols));
  const auto input_words = static_cast<std::size_t>(kernels::SignInputWords(s.cols, s.slices));
  const auto neurons = static_cast<std::size_t>(s.neurons),
             tokens = static_cast<std::size_t>(s.tokens);
  const auto slots = Layer::Slots(s.neurons, !s.by_slot);
  // The device's planes, in the order of slots or neurons, and the neurons' own.
  std::vector<std::uint64_t> sign(neurons * line), large(sign.size()), there(sign.size()),
      large_there(sign.size());
  for (std::size_t i = 0; i < neurons; ++i) {
    const auto row =
        kernels::RandomFloats(static_cast<std::size_t>(s.cols), static_cast<unsigned>(i));
    kernels::PackSigns(row.data(), s.cols, sign.data() + i * line, large.data() + i * line);
    if (slots[i] < 0) continue;
    const std::size_t at = s.by_slot ? static_cast<std::size_t>(slots[i]) : i;
    std::copy_n(sign.data() + i * line, line, there.data() + at * line);
    std::copy_n(large.data() + i * line, line, large_there.data() + at * line);
  }
  // Inputs: a stride wider than the columns, some of which are selected.
  const std::size_t stride = static_cast<std::size_t>(s.cols) * 2 + 3;
  const auto x = kernels::RandomFloats(stride * tokens, 5);
  std::vector<std::int32_t> columns(static_cast<std::size_t>(s.cols));
  for (std::size_t c = 0; c < columns.size(); ++c)
    columns[c] = static_cast<std::int32_t>(s.gather ? 2 * c + 1 : c);
  std::vector<std::int32_t> thresholds;
  for (int i = 0; i < s.neurons; ++i)
    thresholds.push_back(i == 0 ? INT32_MAX : i == 1 ? INT32_MIN / 2 : s.cols / 50);
  const std::int32_t shift = 3;

  std::vector<std::uint16_t> want(neurons);
  std::vector<std::uint64_t> words(input_words * tokens);
  std::vector<std::int32_t> totals(tokens), scores(neurons);
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<float> chosen;
    for (const int c : columns) chosen.push_back(x[t * stride + static_cast<std::size_t>(c)]);
    const auto input =
        kernels::PackSignInput(chosen.data(), s.cols, s.slices, words.data() + t * input_words);
    totals[t] = input.total;
    kernels::ReferenceOps().sign_scores(
        {{s.neurons, s.cols, sign.data(), s.two_planes ? large.data() : nullptr},
         input,
         0,
         s.neurons,
         scores.data()});
    for (std::size_t i = 0; i < neurons; ++i) {
      const bool reaches = slots[i] >= 0 && scores[i] - shift >= thresholds[i];
      want[i] |= static_cast<std::uint16_t>(reaches << t);
    }
  }

  const Array<float> dx(ops, x);
  const Array<std::uint64_t> dsign(ops, there), dlarge(ops, large_there);
  const Array<std::int32_t> dcolumns(ops, columns), dslots(ops, slots),
      dthresholds(ops, thresholds), dshift(ops, std::vector<std::int32_t>{shift}),
      dtotals(ops, tokens);
  const Array<std::uint64_t> dwords(ops,
                                    std::vector<std::uint64_t>(words.size(), ~std::uint64_t{0}));
  Set set(ops, s.neurons);
  MustDo(ops,
         ops.sparse.pack_sign_input({.x = dx,
                                     .x_stride = static_cast<int>(stride),
                                     .columns = s.gather ? dcolumns.get() : nullptr,
                                     .cols = s.cols,
                                     .slices = s.slices,
                                     .tokens = s.tokens,
                                     .words = dwords,
                                     .totals = dtotals},
                                    {}),
         "pack_sign_input");
  MustDo(ops,
         ops.sparse.sign_predict(
             {.planes = {s.neurons, s.cols, dsign, s.two_planes ? dlarge.get() : nullptr},
              .slots = s.by_slot ? dslots.get() : nullptr,
              .planes_by_slot = s.by_slot,
              .thresholds = dthresholds,
              .shift = dshift,
              .neurons = s.neurons,
              .slices = s.slices,
              .tokens = s.tokens,
              .words = dwords,
              .totals = dtotals,
              .out = set.view()},
             {}),
         "sign_predict");
  return {
      "sign prediction",
      std::to_string(s.neurons) + "x" + std::to_string(s.cols) + " slices " +
          std::to_string(s.slices) + " planes " + std::to_string(1 + s.two_planes) + " T" +
          std::to_string(s.tokens),
      0, set.DiffersFrom(want) + Differing(dwords.Get(), words) + Differing(dtotals.Get(), totals)};
}

Check CheckLogits(const DeviceOps& ops, int neurons, int tokens, bool by_slot, bool logits) {
  const auto slots = Layer::Slots(neurons, false);
  const int stride = neurons + 5;
  const auto values = kernels::RandomFloats(static_cast<std::size_t>(stride * tokens), 9);
  const Array<float> dvalues(ops, values), shift(ops, std::vector<float>{0.25F});
  const Array<std::int32_t> dslots(ops, slots);
  Set set(ops, neurons);
  MustDo(ops,
         ops.sparse.logit_predict({.logits = logits ? dvalues.get() : nullptr,
                                   .logits_stride = stride,
                                   .threshold = 0.5F,
                                   .shift = shift,
                                   .slots = dslots,
                                   .logits_by_slot = by_slot,
                                   .neurons = neurons,
                                   .tokens = tokens,
                                   .out = set.view()},
                                  {}),
         "logit_predict");
  std::vector<std::uint16_t> want(static_cast<std::size_t>(neurons));
  for (int i = 0; i < neurons; ++i) {
    const auto n = static_cast<std::size_t>(i);
    for (int t = 0; t < tokens && slots[n] >= 0; ++t) {
      const float logit = values[static_cast<std::size_t>(t * stride + (by_slot ? slots[n] : i))];
      want[n] |= static_cast<std::uint16_t>((!logits || logit >= 0.75F) << t);
    }
  }
  return {logits ? "logit prediction" : "all neurons",
          std::to_string(neurons) + " T" + std::to_string(tokens), 0, set.DiffersFrom(want)};
}

// Mapped memory for the duration of a check.
struct Mapped {
  explicit Mapped(const DeviceOps& o) : ops(o) {
    void *here = nullptr, *there = nullptr;
    MustDo(ops, ops.runtime.allocate_mapped(4096, &here, &there), "allocating mapped memory");
    host = static_cast<std::uint32_t*>(here);
    device = static_cast<std::uint32_t*>(there);
    std::fill_n(host, 1024, 0U);
  }
  ~Mapped() { static_cast<void>(ops.runtime.release_mapped(host)); }
  const DeviceOps& ops;
  std::uint32_t *host, *device;
};
constexpr int kFlagOut = 0, kFlagBack = 16, kError = 32, kOut = 64, kBack = 512;  // words

// Exchanges in a graph's replays.
struct Exchanges {
  int replays, in_a_graph;
  std::uint64_t spins_max;
  bool answer;  // the host answers
};
struct Exchanged {
  double wrong = 0;  // number of wrong exchanges
  double us = 0;     // per exchange, with launches and stream waits
};

constexpr int kWords = 301;  // per exchange

// Five steps: the device publishes, waits for the host's answer and takes it.
void PutExchange(const DeviceOps& ops, const Mapped& mapped, std::uint32_t* const arrays[3],
                 std::uint64_t spins_max, kernels::Stream stream) {
  std::uint32_t *epoch = arrays[0], *from = arrays[1], *back = arrays[2];
  MustDo(ops, ops.sparse.advance(epoch, stream), "advance");
  MustDo(ops, ops.runtime.copy_on_device(from, epoch, 4, stream), "copying");
  MustDo(ops,
         ops.sparse.publish(
             {from, mapped.device + kOut, kWords * 4, mapped.device + kFlagOut, epoch}, stream),
         "publish");
  MustDo(ops,
         ops.sparse.wait({mapped.device + kFlagBack, epoch, mapped.device + kError, spins_max},
                         stream),
         "wait");
  MustDo(ops, ops.runtime.copy_on_device(back, mapped.device + kBack, kWords * 4, stream),
         "copying");
}

// The host's side of exchange number `step`; returns 1 if the data is wrong.
double Answer(const Mapped& mapped, std::uint32_t step) {
  while (__atomic_load_n(mapped.host + kFlagOut, __ATOMIC_ACQUIRE) < step)
    std::this_thread::yield();
  const double wrong = mapped.host[kOut] == step ? 0 : 1;
  for (int i = 0; i < kWords; ++i) mapped.host[kBack + i] = mapped.host[kOut + i] + 1;
  __atomic_store_n(mapped.host + kFlagBack, step, __ATOMIC_RELEASE);
  return wrong;
}

// Replays a graph of exchanges.
Exchanged Replay(const DeviceOps& ops, const Exchanges& e) {
  const Mapped mapped(ops);
  const Array<std::uint32_t> epoch(ops, 1), from(ops, kWords), back(ops, kWords);
  kernels::Stream stream;
  kernels::Graph graph;
  MustDo(ops, ops.runtime.stream_create(&stream), "creating a stream");
  MustDo(ops, ops.runtime.graph_begin(stream), "recording");
  std::uint32_t* const arrays[] = {epoch, from, back};
  for (int i = 0; i < e.in_a_graph; ++i) PutExchange(ops, mapped, arrays, e.spins_max, stream);
  MustDo(ops, ops.runtime.graph_end(stream, &graph), "recording");
  Exchanged out;
  std::uint32_t step = 0;
  const base::Stopwatch watch;
  for (int replay = 0; replay < e.replays; ++replay) {
    MustDo(ops, ops.runtime.graph_launch(graph, stream), "launching");
    for (int i = 0; e.answer && i < e.in_a_graph; ++i) out.wrong += Answer(mapped, ++step);
    MustDo(ops, ops.runtime.stream_synchronize(stream), "waiting");
    if (e.answer) out.wrong += back.Get()[0] == step + 1 && back.Get()[kWords - 1] == 1 ? 0 : 1;
  }
  out.us = 1e6 * watch.Seconds() / (e.replays * e.in_a_graph);
  out.wrong += (__atomic_load_n(mapped.host + kError, __ATOMIC_ACQUIRE) != 0) == e.answer ? 1 : 0;
  MustDo(ops, ops.runtime.graph_destroy(graph), "freeing");
  MustDo(ops, ops.runtime.stream_destroy(stream), "freeing");
  return out;
}

constexpr std::uint64_t kSpins = std::uint64_t{1} << 40;

}  // namespace

std::vector<Check> CheckSignPrediction(const DeviceOps& ops, bool large) {
  std::vector<Check> checks;
  for (const int cols : {32, 200, 576, 1100}) {
    for (int slices = 1; slices <= kernels::kSignSlicesMax; slices += 2) {
      for (const bool two : {false, true})
        checks.push_back(CheckSigns(ops, {61, cols, slices, slices, two, cols > 500, cols == 200}));
    }
  }
  checks.push_back(CheckSigns(ops, {70, 2300, 3, 16, true, true, false}));  // inputs not staged
  checks.push_back(CheckSigns(ops, {2100, 64, 2, 1, false, true, false}));
  if (large) {
    for (const int slices : {1, 3})
      checks.push_back(CheckSigns(ops, {11008, 4096, slices, 2, false, true, false}));
    checks.push_back(CheckSigns(ops, {13824, 5120, 3, 1, true, false, false}));
  }
  return checks;
}

std::vector<Check> CheckLists(const DeviceOps& ops) {
  std::vector<Check> checks;
  for (const int neurons : {1, 37, 1024, 5003}) {
    for (const int tokens : {1, 16}) {
      for (const bool by_slot : {false, true})
        checks.push_back(CheckLogits(ops, neurons, tokens, by_slot, true));
      checks.push_back(CheckLogits(ops, neurons, tokens, false, false));
    }
  }
  return checks;
}

std::vector<Check> CheckRead(const DeviceOps& ops) {
  std::vector<Check> checks;
  for (const std::size_t words : {std::size_t{4}, std::size_t{40000}}) {
    std::vector<std::uint32_t> values(words);
    std::uint32_t want = 5;
    for (std::size_t i = 0; i < words; ++i)
      want += values[i] = static_cast<std::uint32_t>(i * i) * 77U;
    const Array<std::uint32_t> there(ops, values), sum(ops, std::vector<std::uint32_t>{5});
    MustDo(ops, ops.runtime.sum_words(there, words * 4, sum, {}), "sum_words");
    checks.push_back({"sum of words", std::to_string(words), 0, sum.Get()[0] == want ? 0.0 : 1.0});
  }
  return checks;
}

std::vector<Check> CheckHandOff(const DeviceOps& ops) {
  return {{"hand-off", "100 replays", 0, Replay(ops, {100, 1, kSpins, true}).wrong},
          {"hand-off", "2 replays of 200 in a graph", 0, Replay(ops, {2, 200, kSpins, true}).wrong},
          {"hand-off", "nobody answers", 0, Replay(ops, {2, 1, 1000, false}).wrong}};
}

Speed MeasureHandOff(const DeviceOps& ops) {
  return {"hand-off, there and back", "200 in a graph", 2.0 * kWords * 4,
          Replay(ops, {5, 200, kSpins, true}).us};
}

}  // namespace thermocline::gpu
