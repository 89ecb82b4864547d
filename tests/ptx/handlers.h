// The instructions' behavior, by kind. Each function finds the run function for an opcode, or
// nullptr.
#pragma once

#include <type_traits>

#include "tests/ptx/warp.h"

namespace ptx {

Run FindInteger(const Opcode& opcode, Instruction& out);
Run FindFloat(const Opcode& opcode, Instruction& out);
Run FindMove(const Opcode& opcode, Instruction& out);      // mov, selp, setp, cvt, cvta
Run FindMemory(const Opcode& opcode, Instruction& out);    // ld, st, atom, red, fences
Run FindCopy(const Opcode& opcode, Instruction& out);      // cp.async and its waits
Run FindTogether(const Opcode& opcode, Instruction& out);  // lanes that meet, barriers, ends

template <typename T>
using Slot = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <typename T>
inline T FromSlot(Slot<T> slot) {
  T out;
  std::memcpy(&out, &slot, sizeof(T));
  return out;
}
template <typename T>
inline Slot<T> ToSlot(T value) {
  Slot<T> out = 0;
  std::memcpy(&out, &value, sizeof(T));
  return out;
}

// to[0] = F(from...) for every lane.
template <typename F, typename To, typename... From>
struct Each {
  static void Run(const Instruction& code, Warp& warp, Mask mask) {
    Do(code, warp, mask, std::index_sequence_for<From...>());
  }
  template <std::size_t... i>
  static void Do(const Instruction& code, Warp& warp, Mask mask, std::index_sequence<i...>) {
    auto* to = warp.Slots<Slot<To>>(code.to[0]);
    const auto from = std::make_tuple(warp.Slots<Slot<From>>(code.from[i])...);
    ForLanes(mask, [&](int lane) {
      to[lane] = ToSlot<To>(F()(FromSlot<From>(std::get<i>(from)[lane])...));
    });
  }
};

// The handler `Handler<T>::Run` for the type named by `type`, as pred, b16, u32, s64, f32, ...
template <template <typename> typename Handler>
Run ForInteger(std::string_view type) {
  if (type == "s16") return Handler<std::int16_t>::Run;
  if (type == "u16" || type == "b16") return Handler<std::uint16_t>::Run;
  if (type == "s32") return Handler<std::int32_t>::Run;
  if (type == "u32" || type == "b32" || type == "pred") return Handler<std::uint32_t>::Run;
  if (type == "s64") return Handler<std::int64_t>::Run;
  if (type == "u64" || type == "b64") return Handler<std::uint64_t>::Run;
  return nullptr;
}

}  // namespace ptx
