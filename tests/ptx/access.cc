// Loads, stores and atomic operations, each checked: space, bounds, alignment, uninitialized
// memory, and races.
#include <algorithm>
#include <tuple>

#include "tests/ptx/handlers.h"
#include "tests/ptx/reach.h"

namespace ptx {
namespace {

enum class Atomic : std::uint8_t { kNone, kAdd, kMax, kMin, kAnd, kOr, kXor, kExchange };

void Put(Warp& warp, Place place, int lane, std::uint64_t value) {
  if (place.wide)
    warp.Slots<std::uint64_t>(place)[lane] = value;
  else
    warp.Slots<std::uint32_t>(place)[lane] = static_cast<std::uint32_t>(value);
}

// detail: 1 = signed elements.
void Load(const Instruction& code, Warp& warp, Mask mask) {
  const std::uint32_t element = code.bytes;
  const auto all = static_cast<std::uint32_t>(code.to.size()) * element;
  ForLanes(mask, [&](int lane) {
    const Reached at = Reach(code.space, warp, lane, all, {.write = false, .atomic = code.strong})
                           .At(AddressOf(code.address, warp, lane));
    CheckWritten(warp, lane, at, all);
    for (std::size_t i = 0; i < code.to.size(); ++i) {
      std::uint64_t value = 0;
      if (code.strong && element == 4)
        value = __atomic_load_n(reinterpret_cast<const std::uint32_t*>(at.bytes), __ATOMIC_ACQUIRE);
      else
        std::memcpy(&value, at.bytes + i * element, element);
      if (code.detail == 1 && element < 8) {
        const int unused = 64 - 8 * static_cast<int>(element);
        value = static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
      }
      Put(warp, code.to[i], lane, value);
    }
  });
}

void Store(const Instruction& code, Warp& warp, Mask mask) {
  const std::uint32_t element = code.bytes;
  const auto all = static_cast<std::uint32_t>(code.from.size()) * element;
  ForLanes(mask, [&](int lane) {
    const Reached at = Reach(code.space, warp, lane, all, {.write = true, .atomic = code.strong})
                           .At(AddressOf(code.address, warp, lane));
    CheckNotUnderWay(warp, lane, at, all);
    for (std::size_t i = 0; i < code.from.size(); ++i) {
      const std::uint64_t value = warp.Value(code.from[i], lane);
      if (code.strong && element == 4)
        __atomic_store_n(reinterpret_cast<std::uint32_t*>(at.bytes),
                         static_cast<std::uint32_t>(value), __ATOMIC_RELEASE);
      else
        std::memcpy(at.bytes + i * element, &value, element);
    }
    if (at.written != nullptr) std::memset(at.written, 1, all);
  });
}

template <typename T>
T Combine(Atomic how, T old, T value) {
  switch (how) {
    case Atomic::kAdd:
      return static_cast<T>(old + value);
    case Atomic::kMax:
      return std::max(old, value);
    case Atomic::kMin:
      return std::min(old, value);
    case Atomic::kAnd:
      return static_cast<T>(old & value);
    case Atomic::kOr:
      return static_cast<T>(old | value);
    case Atomic::kXor:
      return static_cast<T>(old ^ value);
    default:
      return value;
  }
}

// detail: the operation. Lanes one after the other.
template <typename T>
void AtomicUpdate(const Instruction& code, Warp& warp, Mask mask) {
  ForLanes(mask, [&](int lane) {
    const std::uint64_t address = AddressOf(code.address, warp, lane);
    const Reached at =
        Reach(code.space, warp, lane, sizeof(T), {.write = true, .atomic = true}).At(address);
    CheckWritten(warp, lane, at, sizeof(T));
    T old, value = static_cast<T>(warp.Value(code.from[0], lane));
    std::memcpy(&old, at.bytes, sizeof(T));
    value = Combine(static_cast<Atomic>(code.detail), old, value);
    std::memcpy(at.bytes, &value, sizeof(T));
    if (!code.to.empty()) Put(warp, code.to[0], lane, static_cast<std::uint64_t>(old));
    if (code.space == Space::kGlobal || code.space == Space::kGeneric)
      warp.grid().races.Atomic(address, warp.Now(lane), warp.block().fences);
  });
}

void Fence(const Instruction&, Warp& warp, Mask mask) {
  ForLanes(mask, [&](int lane) { warp.Fence(lane); });
}

Atomic AtomicOf(const Opcode& opcode) {
  if (opcode.Has("add")) return Atomic::kAdd;
  if (opcode.Has("max")) return Atomic::kMax;
  if (opcode.Has("min")) return Atomic::kMin;
  if (opcode.Has("and")) return Atomic::kAnd;
  if (opcode.Has("or")) return Atomic::kOr;
  if (opcode.Has("xor")) return Atomic::kXor;
  return opcode.Has("exch") ? Atomic::kExchange : Atomic::kNone;
}

}  // namespace

Run FindMemory(const Opcode& opcode, Instruction& out) {
  const std::string_view name = opcode.parts[0], type = opcode.type();
  if (name == "membar" || name == "fence") return Fence;
  if (name != "ld" && name != "st" && name != "atom" && name != "red") return nullptr;
  out.space = opcode.Has("global")   ? Space::kGlobal
              : opcode.Has("shared") ? Space::kShared
              : opcode.Has("local")  ? Space::kLocal
              : opcode.Has("param")  ? Space::kParam
                                     : Space::kGeneric;
  out.bytes = type.ends_with("64") ? 8 : type.ends_with("32") ? 4 : type.ends_with("16") ? 2 : 1;
  out.strong = opcode.Has("volatile") || opcode.Has("acquire") || opcode.Has("release") ||
               opcode.Has("relaxed");
  if (name == "ld") {
    out.detail = type.starts_with('s') ? 1 : 0;
    return Load;
  }
  if (name == "st") return Store;
  out.detail = static_cast<std::int64_t>(AtomicOf(opcode));
  if (AtomicOf(opcode) == Atomic::kNone) return nullptr;
  if (type == "s32") return AtomicUpdate<std::int32_t>;
  if (type == "u32" || type == "b32") return AtomicUpdate<std::uint32_t>;
  if (type == "u64" || type == "b64") return AtomicUpdate<std::uint64_t>;
  return nullptr;
}

}  // namespace ptx
