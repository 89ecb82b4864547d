// f32 arithmetic, rounded as the instruction says.
#include <cfenv>
#include <cmath>
#include <limits>
#include <tuple>

#include "tests/ptx/handlers.h"

namespace ptx {
namespace {

struct AddF {
  float operator()(float a, float b) const { return a + b; }
};
struct SubF {
  float operator()(float a, float b) const { return a - b; }
};
struct MulF {
  float operator()(float a, float b) const { return a * b; }
};
struct DivF {
  float operator()(float a, float b) const { return a / b; }
};
struct FmaF {
  float operator()(float a, float b, float c) const { return std::fmaf(a, b, c); }
};
// Rounds towards minus infinity.
struct FmaDown {
  [[gnu::noinline]] float operator()(float a, float b, float c) const {
    volatile float x = a, y = b, z = c;
    std::fesetround(FE_DOWNWARD);
    volatile float out = std::fmaf(x, y, z);
    std::fesetround(FE_TONEAREST);
    return out;
  }
};
struct MinF {
  float operator()(float a, float b) const { return std::fmin(a, b); }
};
struct MaxF {
  float operator()(float a, float b) const { return std::fmax(a, b); }
};
struct NegF {
  float operator()(float a) const { return -a; }
};
struct AbsF {
  float operator()(float a) const { return std::fabs(a); }
};
struct SqrtF {
  float operator()(float a) const { return std::sqrt(a); }
};
struct RcpF {
  float operator()(float a) const { return 1 / a; }
};
// Flushes to zero, and is within 2 units of the last place; no test may compare bits here.
struct Ex2F {
  float operator()(float a) const {
    const float out = std::exp2(a);
    return out < std::numeric_limits<float>::min() ? 0 : out;
  }
};
struct Lg2F {
  float operator()(float a) const { return std::log2(a); }
};
struct TanhF {
  float operator()(float a) const { return std::tanh(a); }
};
struct RsqrtF {
  float operator()(float a) const { return 1 / std::sqrt(a); }
};
// The sign of a on b.
struct CopySign {
  float operator()(float a, float b) const { return std::copysign(b, a); }
};

}  // namespace

Run FindFloat(const Opcode& opcode, Instruction&) {
  if (opcode.type() != "f32" || opcode.Has("sat")) return nullptr;
  const std::string_view name = opcode.parts[0];
  const bool nearest = !opcode.Has("rm") && !opcode.Has("rp") && !opcode.Has("rz");
  if (name == "fma" && opcode.Has("rm")) return Each<FmaDown, float, float, float, float>::Run;
  if (!nearest) return nullptr;
  if (name == "add") return Each<AddF, float, float, float>::Run;
  if (name == "sub") return Each<SubF, float, float, float>::Run;
  if (name == "mul") return Each<MulF, float, float, float>::Run;
  if (name == "div") return Each<DivF, float, float, float>::Run;
  if (name == "fma") return Each<FmaF, float, float, float, float>::Run;
  if (name == "min") return Each<MinF, float, float, float>::Run;
  if (name == "max") return Each<MaxF, float, float, float>::Run;
  if (name == "neg") return Each<NegF, float, float>::Run;
  if (name == "abs") return Each<AbsF, float, float>::Run;
  if (name == "sqrt") return Each<SqrtF, float, float>::Run;
  if (name == "rcp") return Each<RcpF, float, float>::Run;
  if (name == "ex2") return Each<Ex2F, float, float>::Run;
  if (name == "lg2") return Each<Lg2F, float, float>::Run;
  if (name == "tanh") return Each<TanhF, float, float>::Run;
  if (name == "rsqrt") return Each<RsqrtF, float, float>::Run;
  if (name == "copysign") return Each<CopySign, float, float, float>::Run;
  return nullptr;
}

}  // namespace ptx
