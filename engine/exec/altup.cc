#include "engine/exec/altup.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/index.h"
#include "engine/nn/normalize.h"
#include "engine/nn/offset.h"

namespace thermocline::exec {
namespace {

double MeanSquare(const float* x, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += double{x[i]} * double{x[i]};
  return sum / n;
}

// Rescales x [n] to the root mean square `target`.
void Rescale(double target, float* x, int n) {
  constexpr double kSquareMin = 1e-5;  // Source: transformers
  const auto factor =
      static_cast<float>(target / std::sqrt(std::max(MeanSquare(x, n), kSquareMin)));
  for (int i = 0; i < n; ++i) x[i] *= factor;
}

// out += factor * x
void AddScaled(float factor, const float* x, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] += factor * x[i];
}

const float kRootHalf = std::sqrt(0.5F);

}  // namespace

AltUp::AltUp(const Params& p)
    : config_(p.config),
      weights_(p.weights),
      ops_(p.ops),
      pool_(p.pool),
      multiplier_(p.multiplier),
      inputs_(p.inputs),
      size_(p.config.hidden_size),
      count_(p.config.altup.streams) {
  const model::AltUpConfig& a = config_.altup;
  const int all = count_ * size_;
  streams_.resize(base::Area(p.tokens_max, all));
  predictions_.resize(streams_.size());
  others_.resize(base::Area(p.tokens_max, all - size_));
  coefficients_.resize(base::Area(p.tokens_max, count_ * count_));
  wide_.resize(base::Area(p.tokens_max, size_));
  input_.Resize(p.tokens_max, size_);
  routed_.Resize(p.tokens_max, count_);
  low_.Resize(p.tokens_max, a.laurel_rank);
}

std::size_t AltUp::Bytes(const model::ModelConfig& config, int tokens_max) {
  const model::AltUpConfig& a = config.altup;
  if (!a.any()) return 0;
  const int d = config.hidden_size;
  const std::size_t floats =
      base::Area(tokens_max, 3 * a.streams * d) + base::Area(tokens_max, a.streams * a.streams);
  return floats * sizeof(float) + nn::ActivationBuffer::Bytes(tokens_max, d) +
         nn::ActivationBuffer::Bytes(tokens_max, a.streams) +
         nn::ActivationBuffer::Bytes(tokens_max, a.laurel_rank);
}

template <typename Body>
void AltUp::ForTokens(int tokens, const Body& body) {
  if (tokens == 1) return body(0);
  pool_.Run(tokens, [&](int token, int) { body(token); });
}

void AltUp::Multiply(const model::Linear& linear, const nn::ActivationBuffer& input, int tokens,
                     float* out) {
  const std::array products = {nn::Product{&linear, out}};
  multiplier_.Multiply(products, input.view(), tokens);
}

Status AltUp::Begin(std::span<const int> tokens, const float* embeddings) {
  const int count = base::IntSize(tokens);
  const model::SharedAltUpWeights& w = weights_.altup;
  ForTokens(count, [&](int t) {
    std::copy_n(embeddings + nn::Offset(t, size_), size_, input_.x.data() + nn::Offset(t, size_));
    nn::QuantizeToken(ops_, input_, t);
  });
  Multiply(w.begin, input_, count, others_.data());
  ForTokens(count, [&](int t) {
    const float* first = embeddings + nn::Offset(t, size_);
    const double magnitude = std::sqrt(MeanSquare(first, size_));
    std::copy_n(first, size_, stream(t, 0));
    std::copy_n(others_.data() + nn::Offset(t, (count_ - 1) * size_), (count_ - 1) * size_,
                stream(t, 1));
    for (int i = 1; i < count_; ++i) Rescale(magnitude, stream(t, i), size_);
  });
  return inputs_.Begin(tokens, input_);
}

void AltUp::Route(const model::AltUpWeights& w, int tokens, const float* x, std::ptrdiff_t stride) {
  const float scale = 1 / static_cast<float>(size_);
  ForTokens(tokens, [&](int t) {
    float* row = input_.x.data() + nn::Offset(t, size_);
    nn::Normalize(ops_, config_, w.router_norm, x + t * stride, size_, row);
    for (int i = 0; i < size_; ++i) row[i] *= scale;
    nn::QuantizeToken(ops_, input_, t);
  });
  Multiply(w.router, input_, tokens, routed_.x.data());
  for (int t = 0; t < tokens; ++t) {
    float* row = routed_.x.data() + nn::Offset(t, count_);
    for (int i = 0; i < count_; ++i) row[i] = std::tanh(row[i]);
    nn::QuantizeToken(ops_, routed_, t);
  }
}

void AltUp::Predict(int layer, int tokens, float* residual) {
  const model::AltUpWeights& w = weights_.layers[layer].altup;
  Route(w, tokens, streams_.data(), std::ptrdiff_t{count_} * size_);
  Multiply(w.predict, routed_, tokens, coefficients_.data());
  ForTokens(tokens, [&](int t) {
    const float* c = coefficients_.data() + nn::Offset(t, count_ * count_);
    for (int i = 0; i < count_; ++i) {
      float* out = prediction(t, i);
      std::copy_n(stream(t, i), size_, out);
      for (int j = 0; j < count_; ++j) AddScaled(c[i * count_ + j], stream(t, j), size_, out);
    }
    std::copy_n(prediction(t, 0), size_, residual + nn::Offset(t, size_));
  });
}

void AltUp::AddLaurel(int layer, int tokens, const nn::ActivationBuffer& hidden, float* residual) {
  const model::AltUpWeights& w = weights_.layers[layer].altup;
  Multiply(w.laurel_left, hidden, tokens, low_.x.data());
  for (int t = 0; t < tokens; ++t) nn::QuantizeToken(ops_, low_, t);
  Multiply(w.laurel_right, low_, tokens, wide_.data());
  ForTokens(tokens, [&](int t) {
    const std::ptrdiff_t at = nn::Offset(t, size_);
    nn::Normalize(ops_, config_, w.laurel_norm, wide_.data() + at, size_, wide_.data() + at);
    for (int i = 0; i < size_; ++i)
      residual[at + i] = (residual[at + i] + hidden.x[at + i] + wide_[at + i]) * kRootHalf;
  });
}

void AltUp::Correct(int layer, int tokens, const float* residual) {
  const model::AltUpWeights& w = weights_.layers[layer].altup;
  Route(w, tokens, residual, size_);
  Multiply(w.correct, routed_, tokens, coefficients_.data());
  ForTokens(tokens, [&](int t) {
    const float* c = coefficients_.data() + nn::Offset(t, count_);
    const float* computed = residual + nn::Offset(t, size_);
    const float* expected = prediction(t, 0);
    for (int i = 0; i < count_; ++i) {
      const float* from = prediction(t, i);
      float* out = stream(t, i);
      for (int k = 0; k < size_; ++k) out[k] = from[k] + (1 + c[i]) * (computed[k] - expected[k]);
    }
    float* first = input_.x.data() + nn::Offset(t, size_);
    for (int k = 0; k < size_; ++k) first[k] = stream(t, 0)[k] * w.correct_scale[k];
    nn::QuantizeToken(ops_, input_, t);
  });
  AddEmbedding(layer, tokens);
}

// Reads input_ as Correct left it.
void AltUp::AddEmbedding(int layer, int tokens) {
  inputs_.Contribute(layer, tokens, input_, wide_.data());
  ForTokens(tokens, [&](int t) {
    const float* row = wide_.data() + nn::Offset(t, size_);
    for (int i = 1; i < count_; ++i) ops_.add(stream(t, i), row, size_);
  });
}

void AltUp::End(int tokens, float* residual) {
  for (int i = 1; i < count_; ++i) {
    ForTokens(tokens, [&](int t) {
      std::copy_n(stream(t, i), size_, input_.x.data() + nn::Offset(t, size_));
      nn::QuantizeToken(ops_, input_, t);
    });
    const model::Linear one{model::ExpertWeights::Of(weights_.altup.end.weight, i - 1, size_)};
    Multiply(one, input_, tokens, wide_.data());
    ForTokens(tokens, [&](int t) {
      float* row = wide_.data() + nn::Offset(t, size_);
      Rescale(std::sqrt(MeanSquare(stream(t, 0), size_)), row, size_);
      std::copy_n(row, size_, stream(t, i));
    });
  }
  ForTokens(tokens, [&](int t) {
    float* out = residual + nn::Offset(t, size_);
    std::copy_n(stream(t, 0), size_, out);
    for (int i = 1; i < count_; ++i) ops_.add(out, stream(t, i), size_);
    for (int k = 0; k < size_; ++k) out[k] /= static_cast<float>(count_);
  });
}

}  // namespace thermocline::exec
