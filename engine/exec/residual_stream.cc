#include "engine/exec/residual_stream.h"

#include <algorithm>

#include "engine/nn/for_tokens.h"
#include "engine/nn/normalize.h"
#include "engine/nn/offset.h"

namespace thermocline::exec {

void ResidualStream::Norm(const model::NormWeights& norm, int first, int tokens) {
  const int d = config_.hidden_size;
  nn::ForTokens(pool_, tokens, [&](int t) {
    const float* x = ws_.residual.data() + nn::Offset(first + t, d);
    float* out = ws_.hidden.x.data() + nn::Offset(t, d);
    if (norm.weight != nullptr) {
      nn::Normalize(ops_, config_, norm, x, d, out);
    } else {
      std::copy_n(x, d, out);
    }
    nn::QuantizeToken(ops_, ws_.hidden, t);
  });
}

void ResidualStream::NormOutput(const model::NormWeights& norm, std::vector<float>& out,
                                int tokens) {
  if (norm.weight == nullptr) return;
  const int d = config_.hidden_size;
  nn::ForTokens(pool_, tokens, [&](int t) {
    float* row = out.data() + nn::Offset(t, d);
    nn::Normalize(ops_, config_, norm, row, d, row);
  });
}

void ResidualStream::Add(const model::NormWeights& norm, std::vector<float>& out, int tokens) {
  const int d = config_.hidden_size;
  const bool of_sum = config_.architecture->norm_place == model::NormPlace::kOfSum;
  if (!of_sum) NormOutput(norm, out, tokens);
  nn::Scale(config_.residual_scale, out.data(), tokens * d);
  ops_.add(ws_.residual.data(), out.data(), tokens * d);
  if (of_sum) NormOutput(norm, ws_.residual, tokens);
}

void ResidualStream::Move(int from, int to) {
  if (from == to) return;
  const int d = config_.hidden_size;
  float* const rows = ws_.residual.data();
  std::copy_n(rows + nn::Offset(from, d), d, rows + nn::Offset(to, d));
}

}  // namespace thermocline::exec
