// The vectors of a request's texts, one text after the other.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/exec/transformer.h"
#include "engine/nn/kv_cache.h"
#include "engine/sched/answer_steps.h"

namespace thermocline::sched {

// Decode thread only. Borrows its parameters.
class TextVectors {
 public:
  struct Params {
    exec::Transformer& transformer;
    nn::KvCache& cache;
    StepCounters* steps;
    // Called before each step of so many new tokens: whether it is computed now.
    std::function<Stop(Sequence&, int)> before_step;
    std::function<bool(const Sequence&)> wanted;  // false: its client has left, or it is late
    std::function<int()> tokens_max;              // of a step
    // Called after each step of so many tokens, with its seconds, and those of an encoder.
    std::function<void(int, double)> charge;
    std::function<void(double)> charge_encoder;
  };
  explicit TextVectors(Params params) : p_(std::move(params)) {}

  // Computes the texts that are left and sends their vectors. kLength: that was all.
  Stop Send(Sequence& s) const;

 private:
  // Computes a step of the next text.
  Stop Step(Sequence& s, std::span<const int> text) const;
  // The same of an encoder.
  Stop EncoderStep(Sequence& s, std::span<const int> text) const;
  Stop Emit(Sequence& s) const;

  const Params p_;
};

}  // namespace thermocline::sched
