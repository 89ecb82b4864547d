// Integers: arithmetic, bits, dot products.
#include <bit>
#include <tuple>

#include "tests/ptx/handlers.h"

namespace ptx {
namespace {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;
template <typename T>
using Twice = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>,
    std::conditional_t<sizeof(T) == 4,
                       std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

// Two operands of one type; wraps around.
#define THERMOCLINE_BINARY(Name, expression)                                                      \
  template <typename T>                                                                           \
  struct Name {                                                                                   \
    T operator()(T a, T b) const {                                                                \
      using U [[maybe_unused]] = Unsigned<T>;                                                     \
      return static_cast<T>(expression);                                                          \
    }                                                                                             \
    static void Run(const Instruction& c, Warp& w, Mask m) { Each<Name, T, T, T>::Run(c, w, m); } \
  };
THERMOCLINE_BINARY(Add, static_cast<U>(a) + static_cast<U>(b))
THERMOCLINE_BINARY(Sub, static_cast<U>(a) - static_cast<U>(b))
THERMOCLINE_BINARY(MulLo, static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b))
THERMOCLINE_BINARY(MulHi, (static_cast<Twice<T>>(a) * static_cast<Twice<T>>(b)) >> (8 * sizeof(T)))
THERMOCLINE_BINARY(Div, b == 0 ? static_cast<T>(-1) : static_cast<T>(a / b))
THERMOCLINE_BINARY(Rem, b == 0 ? a : static_cast<T>(a % b))
THERMOCLINE_BINARY(Min, a < b ? a : b)
THERMOCLINE_BINARY(Max, a < b ? b : a)
THERMOCLINE_BINARY(And, a& b)
THERMOCLINE_BINARY(Or, a | b)
THERMOCLINE_BINARY(Xor, a ^ b)
#undef THERMOCLINE_BINARY

template <typename T>
struct Neg {
  T operator()(T a) const { return static_cast<T>(Unsigned<T>{0} - static_cast<Unsigned<T>>(a)); }
  static void Run(const Instruction& c, Warp& w, Mask m) { Each<Neg, T, T>::Run(c, w, m); }
};
template <typename T>
struct Abs {
  T operator()(T a) const { return a < 0 ? Neg<T>()(a) : a; }
  static void Run(const Instruction& c, Warp& w, Mask m) { Each<Abs, T, T>::Run(c, w, m); }
};
template <typename T>
struct Not {
  T operator()(T a) const { return static_cast<T>(~a); }
  static void Run(const Instruction& c, Warp& w, Mask m) { Each<Not, T, T>::Run(c, w, m); }
};
struct NotPred {
  std::uint32_t operator()(std::uint32_t a) const { return a == 0 ? 1 : 0; }
};
// Counts beyond the width give zeros, or copies of the sign.
template <typename T>
struct Shl {
  T operator()(T a, std::uint32_t n) const {
    return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<Unsigned<T>>(a) << n);
  }
  static void Run(const Instruction& c, Warp& w, Mask m) {
    Each<Shl, T, T, std::uint32_t>::Run(c, w, m);
  }
};
template <typename T>
struct Shr {
  T operator()(T a, std::uint32_t n) const {
    const std::uint32_t bits = 8 * sizeof(T);
    if (n >= bits) return static_cast<T>(a < 0 ? -1 : 0);
    return static_cast<T>(a >> n);
  }
  static void Run(const Instruction& c, Warp& w, Mask m) {
    Each<Shr, T, T, std::uint32_t>::Run(c, w, m);
  }
};
template <typename T>
struct MulWide {
  Twice<T> operator()(T a, T b) const {
    return static_cast<Twice<T>>(a) * static_cast<Twice<T>>(b);
  }
  static void Run(const Instruction& c, Warp& w, Mask m) {
    if constexpr (sizeof(T) < 8) Each<MulWide, Twice<T>, T, T>::Run(c, w, m);
  }
};
template <typename T>
struct MadLo {
  T operator()(T a, T b, T c) const {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b) +
                          static_cast<std::uint64_t>(c));
  }
  static void Run(const Instruction& c, Warp& w, Mask m) { Each<MadLo, T, T, T, T>::Run(c, w, m); }
};
template <typename T>
struct MadWide {
  Twice<T> operator()(T a, T b, Twice<T> c) const { return MulWide<T>()(a, b) + c; }
  static void Run(const Instruction& c, Warp& w, Mask m) {
    if constexpr (sizeof(T) < 8) Each<MadWide, Twice<T>, T, T, Twice<T>>::Run(c, w, m);
  }
};
template <typename T>
struct Popc {
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::popcount(static_cast<Unsigned<T>>(a)));
  }
  static void Run(const Instruction& c, Warp& w, Mask m) {
    Each<Popc, std::uint32_t, T>::Run(c, w, m);
  }
};
template <typename T>
struct Clz {
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::countl_zero(static_cast<Unsigned<T>>(a)));
  }
  static void Run(const Instruction& c, Warp& w, Mask m) {
    Each<Clz, std::uint32_t, T>::Run(c, w, m);
  }
};
// bfind.shiftamt of an unsigned type: the distance of the highest bit from the top; all ones for 0.
template <typename T>
struct FindShift {
  std::uint32_t operator()(T a) const {
    return a == 0 ? ~0U : static_cast<std::uint32_t>(std::countl_zero(static_cast<Unsigned<T>>(a)));
  }
  static void Run(const Instruction& c, Warp& w, Mask m) {
    Each<FindShift, std::uint32_t, T>::Run(c, w, m);
  }
};
struct Reverse {
  std::uint32_t operator()(std::uint32_t a) const {
    std::uint32_t out = 0;
    for (int i = 0; i < 32; ++i) out |= (a >> i & 1U) << (31 - i);
    return out;
  }
};
// Bits [b, b + c) of a, signed or not.
template <typename T>
struct Bfe {
  T operator()(T a, std::uint32_t at, std::uint32_t count) const {
    at &= 255, count &= 255;
    const std::uint32_t width = 8 * sizeof(T);
    if (count == 0) return 0;
    T out = 0;
    for (std::uint32_t i = 0; i < width; ++i) {
      const std::uint32_t from =
          std::min(at + std::min(i, std::is_signed_v<T> ? count - 1 : i), width - 1);
      const bool in = i < count || std::is_signed_v<T>;
      const bool bit = at + std::min(i, count - 1) < width || std::is_signed_v<T>
                           ? (static_cast<Unsigned<T>>(a) >> from & 1U) != 0
                           : false;
      if (in && bit) out = static_cast<T>(out | static_cast<T>(Unsigned<T>{1} << i));
    }
    return out;
  }
  static void Run(const Instruction& c, Warp& w, Mask m) {
    Each<Bfe, T, T, std::uint32_t, std::uint32_t>::Run(c, w, m);
  }
};

// Inserts the lowest `count` bits of a into b, from bit `at` on.
struct Bfi {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t at,
                           std::uint32_t count) const {
    at &= 255, count &= 255;
    for (std::uint32_t i = 0; i < count && at + i < 32; ++i)
      b = (b & ~(1U << (at + i))) | (a >> i & 1U) << (at + i);
    return b;
  }
};

struct Prmt {
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t selector) const {
    const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
    std::uint32_t out = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t pick = selector >> (4 * i) & 15U;
      std::uint32_t byte = static_cast<std::uint32_t>(bytes >> (8 * (pick & 7U))) & 255U;
      if ((pick & 8U) != 0) byte = (byte & 128U) != 0 ? 255U : 0U;
      out |= byte << (8 * i);
    }
    return out;
  }
};

// Four products of bytes, each operand signed or not.
template <bool a_signed, bool b_signed>
struct Dp4a {
  static int Byte(std::uint32_t word, int i, bool sign) {
    const auto byte = static_cast<std::uint8_t>(word >> (8 * i));
    return sign ? static_cast<std::int8_t>(byte) : byte;
  }
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t c) const {
    for (int i = 0; i < 4; ++i)
      c += static_cast<std::uint32_t>(Byte(a, i, a_signed) * Byte(b, i, b_signed));
    return c;
  }
};

}  // namespace

Run FindInteger(const Opcode& opcode, Instruction&) {
  const std::string_view name = opcode.parts[0], type = opcode.type();
  using U32 = std::uint32_t;
  if (type.starts_with('f')) return nullptr;
  if (name == "add") return ForInteger<Add>(type);
  if (name == "sub") return ForInteger<Sub>(type);
  if (name == "mul")
    return opcode.Has("wide") ? ForInteger<MulWide>(type)
           : opcode.Has("hi") ? ForInteger<MulHi>(type)
                              : ForInteger<MulLo>(type);
  if (name == "mad" && !opcode.Has("hi"))
    return opcode.Has("wide") ? ForInteger<MadWide>(type) : ForInteger<MadLo>(type);
  if (name == "div") return ForInteger<Div>(type);
  if (name == "rem") return ForInteger<Rem>(type);
  if (name == "min") return ForInteger<Min>(type);
  if (name == "max") return ForInteger<Max>(type);
  if (name == "neg") return ForInteger<Neg>(type);
  if (name == "abs") return ForInteger<Abs>(type);
  if (name == "and") return ForInteger<And>(type);
  if (name == "or") return ForInteger<Or>(type);
  if (name == "xor") return ForInteger<Xor>(type);
  if (name == "not") return type == "pred" ? Each<NotPred, U32, U32>::Run : ForInteger<Not>(type);
  if (name == "shl") return ForInteger<Shl>(type);
  if (name == "shr") return ForInteger<Shr>(type);
  if (name == "popc") return ForInteger<Popc>(type);
  if (name == "clz") return ForInteger<Clz>(type);
  if (name == "bfind" && opcode.Has("shiftamt") && type[0] == 'u')
    return ForInteger<FindShift>(type);
  if (name == "brev" && type == "b32") return Each<Reverse, U32, U32>::Run;
  if (name == "bfe") return ForInteger<Bfe>(type);
  if (name == "bfi" && type == "b32") return Each<Bfi, U32, U32, U32, U32, U32>::Run;
  if (name == "prmt" && opcode.parts.size() == 2) return Each<Prmt, U32, U32, U32, U32>::Run;
  if (name == "dp4a") {
    const bool a = opcode.parts[1] == "s32", b = opcode.parts[2] == "s32";
    if (a && b) return Each<Dp4a<true, true>, U32, U32, U32, U32>::Run;
    if (!a && b) return Each<Dp4a<false, true>, U32, U32, U32, U32>::Run;
    if (a) return Each<Dp4a<true, false>, U32, U32, U32, U32>::Run;
    return Each<Dp4a<false, false>, U32, U32, U32, U32>::Run;
  }
  return nullptr;
}

}  // namespace ptx
