// Moves, selections, comparisons, conversions.
#include <cmath>
#include <limits>
#include <tuple>

#include "kernels/quantize.h"
#include "tests/ptx/handlers.h"

namespace ptx {
namespace {

// Moves one place to one, several narrower ones to a wider one, or one to several.
void Move(const Instruction& code, Warp& warp, Mask mask) {
  const std::size_t to = code.to.size(), from = code.from.size();
  const auto total = static_cast<int>(code.detail);  // total number of bits
  ForLanes(mask, [&](int lane) {
    std::uint64_t value = 0;
    const int part = total / static_cast<int>(from), out = total / static_cast<int>(to);
    for (std::size_t i = from; i-- > 0;) {
      const std::uint64_t bits = warp.Value(code.from[i], lane);
      value = from == 1 ? bits : value << part | (bits & ((std::uint64_t{1} << part) - 1));
    }
    for (std::size_t i = 0; i < to; ++i) {
      const std::uint64_t bits =
          to == 1 ? value : value >> (out * static_cast<int>(i)) & ((std::uint64_t{1} << out) - 1);
      if (code.to[i].wide)
        warp.Slots<std::uint64_t>(code.to[i])[lane] = bits;
      else
        warp.Slots<std::uint32_t>(code.to[i])[lane] = static_cast<std::uint32_t>(bits);
    }
  });
}

template <typename T>
struct Selp {
  T operator()(T a, T b, std::uint32_t p) const { return p != 0 ? a : b; }
  static void Run(const Instruction& c, Warp& w, Mask m) {
    Each<Selp, T, T, T, std::uint32_t>::Run(c, w, m);
  }
};

#define THERMOCLINE_COMPARISON(Name, expression)                              \
  template <typename T>                                                       \
  struct Name {                                                               \
    std::uint32_t operator()(T a, T b) const { return (expression) ? 1 : 0; } \
    static void Run(const Instruction& c, Warp& w, Mask m) {                  \
      Each<Name, std::uint32_t, T, T>::Run(c, w, m);                          \
    }                                                                         \
  };
THERMOCLINE_COMPARISON(Eq, a == b)
THERMOCLINE_COMPARISON(Ne, a != b)
THERMOCLINE_COMPARISON(Lt, a < b)
THERMOCLINE_COMPARISON(Le, a <= b)
THERMOCLINE_COMPARISON(Gt, a > b)
THERMOCLINE_COMPARISON(Ge, a >= b)
// Unordered: true for NaN.
THERMOCLINE_COMPARISON(Equ, !(a < b || a > b))
THERMOCLINE_COMPARISON(Neu, !(a == b))
THERMOCLINE_COMPARISON(Ltu, !(a >= b))
THERMOCLINE_COMPARISON(Leu, !(a > b))
THERMOCLINE_COMPARISON(Gtu, !(a <= b))
THERMOCLINE_COMPARISON(Geu, !(a < b))
THERMOCLINE_COMPARISON(Num, a == a && b == b)
THERMOCLINE_COMPARISON(Nan, a != a || b != b)
#undef THERMOCLINE_COMPARISON
// "ne" of floats is ordered.
struct NeF {
  std::uint32_t operator()(float a, float b) const { return a < b || a > b ? 1 : 0; }
};

Run FindSetp(const Opcode& opcode) {
  const std::string_view how = opcode.parts[1], type = opcode.type();
  if (opcode.parts.size() != 3) return nullptr;
  if (type == "f32") {
    if (how == "eq") return Eq<float>::Run;
    if (how == "ne") return Each<NeF, std::uint32_t, float, float>::Run;
    if (how == "lt") return Lt<float>::Run;
    if (how == "le") return Le<float>::Run;
    if (how == "gt") return Gt<float>::Run;
    if (how == "ge") return Ge<float>::Run;
    if (how == "equ") return Equ<float>::Run;
    if (how == "neu") return Neu<float>::Run;
    if (how == "ltu") return Ltu<float>::Run;
    if (how == "leu") return Leu<float>::Run;
    if (how == "gtu") return Gtu<float>::Run;
    if (how == "geu") return Geu<float>::Run;
    if (how == "num") return Num<float>::Run;
    if (how == "nan") return Nan<float>::Run;
    return nullptr;
  }
  if (how == "eq") return ForInteger<Eq>(type);
  if (how == "ne") return ForInteger<Ne>(type);
  if (how == "lt" || how == "lo") return ForInteger<Lt>(type);
  if (how == "le" || how == "ls") return ForInteger<Le>(type);
  if (how == "gt" || how == "hi") return ForInteger<Gt>(type);
  if (how == "ge" || how == "hs") return ForInteger<Ge>(type);
  return nullptr;
}

template <typename To, typename From>
struct Integer {
  To operator()(From a) const { return static_cast<To>(a); }
};
struct Nearest {
  std::int32_t operator()(float a) const {
    if (std::isnan(a)) return 0;
    const double rounded = std::nearbyint(static_cast<double>(a));
    return rounded >= 2147483647.0    ? std::numeric_limits<std::int32_t>::max()
           : rounded <= -2147483648.0 ? std::numeric_limits<std::int32_t>::min()
                                      : static_cast<std::int32_t>(rounded);
  }
};
struct TowardsZero {
  std::int32_t operator()(float a) const { return Nearest()(std::trunc(a)); }
};
struct NearestFloat {
  float operator()(float a) const { return std::nearbyint(a); }
};
struct Saturate {
  float operator()(float a) const { return a > 0 ? std::fmin(a, 1.0F) : 0.0F; }
};
struct FromHalf {
  float operator()(std::uint16_t a) const { return thermocline::kernels::HalfToFloat(a); }
};
struct ToHalf {
  std::uint16_t operator()(float a) const { return thermocline::kernels::FloatToHalf(a); }
};

template <typename To>
Run FromInteger(std::string_view from) {
  if (from == "s8") return Each<Integer<To, std::int8_t>, To, std::int8_t>::Run;
  if (from == "u8") return Each<Integer<To, std::uint8_t>, To, std::uint8_t>::Run;
  if (from == "s16") return Each<Integer<To, std::int16_t>, To, std::int16_t>::Run;
  if (from == "u16") return Each<Integer<To, std::uint16_t>, To, std::uint16_t>::Run;
  if (from == "s32") return Each<Integer<To, std::int32_t>, To, std::int32_t>::Run;
  if (from == "u32") return Each<Integer<To, std::uint32_t>, To, std::uint32_t>::Run;
  if (from == "s64") return Each<Integer<To, std::int64_t>, To, std::int64_t>::Run;
  if (from == "u64") return Each<Integer<To, std::uint64_t>, To, std::uint64_t>::Run;
  return nullptr;
}

// A narrow signed result is sign-extended to its register, as for integers.
Run FindCvt(const Opcode& opcode) {
  const std::string_view from = opcode.type(), to = opcode.parts[opcode.parts.size() - 2];
  if (from == "f32" && to == "s32")
    return opcode.Has("rzi")   ? Each<TowardsZero, std::int32_t, float>::Run
           : opcode.Has("rni") ? Each<Nearest, std::int32_t, float>::Run
                               : nullptr;
  if (from == "f32" && to == "f32")
    return opcode.Has("sat")   ? Each<Saturate, float, float>::Run
           : opcode.Has("rni") ? Each<NearestFloat, float, float>::Run
                               : nullptr;
  if (from == "f16" && to == "f32") return Each<FromHalf, float, std::uint16_t>::Run;
  if (from == "f32" && to == "f16") return Each<ToHalf, std::uint16_t, float>::Run;
  if (from.starts_with('f') || opcode.Has("sat")) return nullptr;
  if (to == "f32") return opcode.Has("rn") ? FromInteger<float>(from) : nullptr;
  if (to == "u8") return FromInteger<std::uint8_t>(from);
  if (to == "s8") return FromInteger<std::int8_t>(from);
  if (to == "u16") return FromInteger<std::uint16_t>(from);
  if (to == "s16") return FromInteger<std::int16_t>(from);
  if (to == "u32") return FromInteger<std::uint32_t>(from);
  if (to == "s32") return FromInteger<std::int32_t>(from);
  if (to == "u64") return FromInteger<std::uint64_t>(from);
  if (to == "s64") return FromInteger<std::int64_t>(from);
  return nullptr;
}

// Converts between generic addresses and those of a space.
template <bool to_space>
void ConvertAddress(const Instruction& code, Warp& warp, Mask mask) {
  const std::uint64_t window = code.space == Space::kShared  ? kSharedWindow
                               : code.space == Space::kLocal ? kLocalWindow
                                                             : 0;
  const auto* from = warp.Slots<std::uint64_t>(code.from[0]);
  auto* to = warp.Slots<std::uint64_t>(code.to[0]);
  ForLanes(mask, [&](int lane) {
    const std::uint64_t at = from[lane];
    to[lane] = to_space ? at - window : at + window;
  });
}

}  // namespace

Run FindMove(const Opcode& opcode, Instruction& out) {
  const std::string_view name = opcode.parts[0], type = opcode.type();
  if (name == "mov") {
    out.detail = type.ends_with("64") ? 64 : type.ends_with("16") ? 16 : 32;
    return Move;
  }
  if (name == "selp") {
    if (type == "f32") return Selp<std::uint32_t>::Run;
    return ForInteger<Selp>(type);
  }
  if (name == "setp") return FindSetp(opcode);
  if (name == "cvt") return FindCvt(opcode);
  if (name == "cvta" && type == "u64") {
    out.space = opcode.Has("shared")  ? Space::kShared
                : opcode.Has("local") ? Space::kLocal
                                      : Space::kGlobal;
    return opcode.Has("to") ? ConvertAddress<true> : ConvertAddress<false>;
  }
  return nullptr;
}

}  // namespace ptx
