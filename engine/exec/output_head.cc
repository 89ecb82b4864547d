#include "engine/exec/output_head.h"

#include <array>

#include "engine/nn/for_tokens.h"
#include "engine/nn/normalize.h"
#include "engine/nn/offset.h"
#include "kernels/quantize.h"

namespace thermocline::exec {

// A quantised head multiplies 8-bit activations, whose rounding causes most of the logits' error
// (0.06 of the 0.06 nats on Tidepool; all other products together cause 0.01). So the rounding
// error is quantised too and multiplied as a second token: 16 bits of precision for the same weight
// bytes.
std::span<const float> OutputHead::Run(int count) {
  const model::ModelConfig& config = p_.config;
  nn::Workspace& ws = p_.workspace;
  const int d = config.hidden_size;
  // An encoder has no head: its logits are zero, and are asked for by measurements at load alone.
  if (p_.weights.output.weight.rows == 0)
    return std::span(ws.logits).first(nn::Offset(count, config.vocab_size));
  p_.residual.Norm(p_.weights.output_norm, 0, count);
  const std::array product = {nn::Product{&p_.weights.output, ws.logits.data()}};
  if (kernels::Traits(p_.weights.output.weight.type).quantized) {
    nn::ActivationBuffer& x = ws.head;
    for (int t = 0; t < count; ++t) {
      const std::ptrdiff_t from = nn::Offset(t, d), rest = nn::Offset(count + t, d);
      const kernels::Activations hidden = ws.hidden.view(from, d);
      for (int i = 0; i < d; ++i) {
        x.x[from + i] = hidden.x[i];
        x.x[rest + i] = hidden.x[i] - hidden.scale[i / kernels::kActivationBlock] * hidden.q[i];
      }
      nn::QuantizeToken(p_.ops, x, t);
      nn::QuantizeToken(p_.ops, x, count + t);
    }
    p_.multiplier.Multiply(product, x.view(), 2 * count, /*fold=*/true);
  } else {
    p_.multiplier.Multiply(product, ws.hidden.view(), count, /*fold=*/false);
  }
  const std::span<float> logits = std::span(ws.logits).first(nn::Offset(count, config.vocab_size));
  nn::Scale(config.logit_scale, logits.data(), base::IntSize(logits));
  if (config.logit_cap > 0)
    p_.ops.soft_cap(logits.data(), base::IntSize(logits), static_cast<float>(config.logit_cap));
  return logits;
}

}  // namespace thermocline::exec
