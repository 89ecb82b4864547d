// Collective operations of lanes and warps: shuffles, votes, sums, matrix products, barriers; and
// the end.
#include <array>
#include <tuple>

#include "tests/ptx/handlers.h"

namespace ptx {
namespace {

enum Shuffle : std::uint8_t { kUp, kDown, kXor, kIndex };

// from: value, lane or distance, clamp and segment mask, members.
template <Shuffle how>
void Shfl(const Instruction& code, Warp& warp, Mask mask) {
  std::array<std::uint32_t, 32> values;
  const auto* from = warp.Slots<std::uint32_t>(code.from[0]);
  std::copy(from, from + 32, values.begin());
  ForLanes(mask, [&](int lane) {
    const auto b = static_cast<int>(warp.Value(code.from[1], lane) & 31U),
               c = static_cast<int>(warp.Value(code.from[2], lane));
    const int clamp = c & 31, segment = c >> 8 & 31;
    const int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    int at = 0;
    bool in = false;
    if (how == kUp) at = lane - b, in = at >= last;
    if (how == kDown) at = lane + b, in = at <= last;
    if (how == kXor) at = lane ^ b, in = at <= last;
    if (how == kIndex) at = first | (b & ~segment), in = at <= last;
    if (!in) at = lane;
    if ((mask >> at & 1U) == 0) warp.Fail(lane, "a shuffle from a lane that does not take part");
    warp.Slots<std::uint32_t>(code.to[0])[lane] = values[static_cast<std::size_t>(at)];
    if (code.to.size() > 1) warp.Slots<std::uint32_t>(code.to[1])[lane] = in ? 1 : 0;
  });
}

Mask TrueLanes(const Instruction& code, Warp& warp, Mask mask) {
  Mask out = 0;
  ForLanes(mask, [&](int lane) {
    if (warp.Slots<std::uint32_t>(code.from[0])[lane] != 0) out |= Mask{1} << lane;
  });
  return out;
}
void Ballot(const Instruction& code, Warp& warp, Mask mask) {
  const Mask out = TrueLanes(code, warp, mask);
  ForLanes(mask, [&](int lane) { warp.Slots<std::uint32_t>(code.to[0])[lane] = out; });
}
template <bool all>
void Vote(const Instruction& code, Warp& warp, Mask mask) {
  const Mask out = TrueLanes(code, warp, mask);
  ForLanes(mask, [&](int lane) {
    warp.Slots<std::uint32_t>(code.to[0])[lane] = (all ? out == mask : out != 0) ? 1 : 0;
  });
}

template <typename T, bool max>
void Reduce(const Instruction& code, Warp& warp, Mask mask) {
  const auto* from = warp.Slots<std::uint32_t>(code.from[0]);
  T out = max ? static_cast<T>(from[__builtin_ctz(mask)]) : T{0};
  ForLanes(mask, [&](int lane) {
    const auto value = static_cast<T>(from[lane]);
    out = max ? std::max(out, value)
              : static_cast<T>(static_cast<std::uint32_t>(out) + static_cast<std::uint32_t>(value));
  });
  ForLanes(mask, [&](int lane) {
    warp.Slots<std::uint32_t>(code.to[0])[lane] = static_cast<std::uint32_t>(out);
  });
}

// The tensor-core product d[16, 8] = a[16, K] b[K, 8] + c[16, 8] of signed bytes with 32-bit sums.
// K = 16 kWords: a register holds four bytes, and the four lanes of a row hold 16 of K.
template <int kWords>
void Mma(const Instruction& code, Warp& warp, Mask) {
  std::int8_t a[16][16 * kWords], b[16 * kWords][8];
  const auto byte = [&](Place place, int lane, int i) {
    return static_cast<std::int8_t>(warp.Slots<std::uint32_t>(place)[lane] >> (8 * i));
  };
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int half = 0; half < kWords; ++half) {
      for (int i = 0; i < 4; ++i) {
        const int k = 16 * half + 4 * t + i;
        a[g][k] = byte(code.from[static_cast<std::size_t>(2 * half)], lane, i);
        a[g + 8][k] = byte(code.from[static_cast<std::size_t>(2 * half + 1)], lane, i);
        b[k][g] = byte(code.from[static_cast<std::size_t>(2 * kWords + half)], lane, i);
      }
    }
  }
  std::int32_t sums[32][4];
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      auto sum = static_cast<std::int32_t>(
          warp.Slots<std::uint32_t>(code.from[static_cast<std::size_t>(3 * kWords + i)])[lane]);
      for (int k = 0; k < 16 * kWords; ++k) sum += a[row][k] * b[k][column];
      sums[lane][i] = sum;
    }
  }
  for (int lane = 0; lane < 32; ++lane)
    for (std::size_t i = 0; i < 4; ++i) warp.Slots<std::int32_t>(code.to[i])[lane] = sums[lane][i];
}

void Barrier(const Instruction&, Warp& warp, Mask mask) { warp.WaitAtBarrier(mask); }
void WarpBarrier(const Instruction&, Warp& warp, Mask mask) {
  if (mask == kAllLanes) warp.Meet();
}
void End(const Instruction&, Warp& warp, Mask mask) { warp.End(mask); }
void Nothing(const Instruction&, Warp&, Mask) {}
void Trap(const Instruction&, Warp& warp, Mask mask) { warp.Fail(__builtin_ctz(mask), "a trap"); }

}  // namespace

Run FindTogether(const Opcode& opcode, Instruction& out) {
  const std::string_view name = opcode.parts[0];
  if (name == "ret" || name == "exit") return End;
  if (name == "trap") return Trap;
  if (name == "bra" || name == "nanosleep") return Nothing;
  if ((name == "bar" || name == "barrier") && !opcode.Has("warp"))
    return opcode.Has("sync") && out.from.size() == 1 ? Barrier : nullptr;
  out.converges = true;
  if (name == "bar") return WarpBarrier;
  if (name == "shfl" && opcode.Has("up")) return Shfl<kUp>;
  if (name == "shfl" && opcode.Has("down")) return Shfl<kDown>;
  if (name == "shfl" && opcode.Has("bfly")) return Shfl<kXor>;
  if (name == "shfl" && opcode.Has("idx")) return Shfl<kIndex>;
  if (name == "vote" && opcode.Has("ballot")) return Ballot;
  if (name == "vote" && opcode.Has("any")) return Vote<false>;
  if (name == "vote" && opcode.Has("all")) return Vote<true>;
  if (name == "redux" && opcode.Has("add")) return Reduce<std::uint32_t, false>;
  if (name == "redux" && opcode.Has("max"))
    return opcode.type() == "s32" ? Reduce<std::int32_t, true> : Reduce<std::uint32_t, true>;
  if (name == "mma") {
    out.detail = -1;
    if (opcode.Has("m16n8k32") && opcode.Has("s8") && out.from.size() == 10) return Mma<2>;
    if (opcode.Has("m16n8k16") && opcode.Has("s8") && out.from.size() == 7) return Mma<1>;
  }
  out.converges = false;
  return nullptr;
}

void Decode(const Opcode& opcode, Instruction& out) {
  for (const auto find : {FindInteger, FindFloat, FindMove, FindMemory, FindCopy, FindTogether}) {
    out.run = find(opcode, out);
    if (out.run != nullptr) return;
  }
  throw std::runtime_error("an instruction that the interpreter does not know");
}

bool IsWide(const Opcode& opcode, int index) {
  const std::string_view name = opcode.parts[0];
  if (!opcode.type().ends_with("64")) return name == "mad" && opcode.Has("wide") && index == 3;
  if ((name == "shl" || name == "shr") && index == 2) return false;
  return name != "cvt" || index > 0;
}

}  // namespace ptx
