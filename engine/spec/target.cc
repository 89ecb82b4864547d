#include "engine/spec/target.h"

#include "engine/base/index.h"

namespace thermocline::spec {

using exec::Transformer;

exec::StepResult<std::span<const float>> TransformerTarget::Step(std::span<const int> tokens) {
  stepped_ = base::IntSize(tokens);
  const bool one = stepped_ == 1;
  return transformer_.Forward(tokens, cache_,
                              one ? Transformer::Logits::kLast : Transformer::Logits::kAll,
                              one ? Transformer::Step::kDecode : Transformer::Step::kVerify);
}

void TransformerTarget::Keep(int kept) {
  if (stepped_ == 1) return;  // a step of one token needs no EndVerify
  transformer_.CountKept(kept);
  cache_.SetLength(cache_.length() - stepped_ + kept);
  transformer_.EndVerify(kept);
}

}  // namespace thermocline::spec
