// Loads, stores and atomic operations, each checked: space, bounds, alignment, whether it was ever
// written, and races.
#include <algorithm>
#include <tuple>

#include "tests/ptx/handlers.h"

namespace ptx {
namespace {

enum class Atomic : std::uint8_t { kNone, kAdd, kMax, kMin, kAnd, kOr, kXor, kExchange };

std::string Hex(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// Checked memory of one lane.
struct Reached {
  std::uint8_t* bytes = nullptr;
  std::uint8_t* written = nullptr;  // of each; null: not known
};

class Reach {
 public:
  Reach(const Instruction& code, Warp& warp, int lane, std::uint32_t bytes, AccessKind kind)
      : code_(code), warp_(warp), lane_(lane), bytes_(bytes), kind_(kind) {}

  Reached At(std::uint64_t at) {
    Space space = code_.space;
    if (at % bytes_ != 0) Fail("not aligned to " + std::to_string(bytes_) + " bytes", at);
    if (space == Space::kGeneric && at >= kSharedWindow && at < kSharedWindow + kWindowBytes)
      space = Space::kShared, at -= kSharedWindow;
    else if (space == Space::kGeneric && at >= kLocalWindow && at < kLocalWindow + kWindowBytes)
      space = Space::kLocal, at -= kLocalWindow;
    switch (space) {
      case Space::kParam:
        return Inside(const_cast<std::uint8_t*>(warp_.grid().params.data()),
                      warp_.grid().params.size(), at, "parameters");
      case Space::kLocal:
        return Inside(warp_.local(lane_).data(), warp_.local(lane_).size(), at, "local memory");
      case Space::kShared:
        return Shared(at);
      default:
        return Global(at);
    }
  }

 private:
  [[noreturn]] void Fail(const std::string& what, std::uint64_t at) const {
    warp_.Fail(lane_, (kind_.write ? "a store to " : "a load from ") + Hex(at) + ": " + what);
  }
  Reached Inside(std::uint8_t* base, std::size_t size, std::uint64_t at, const char* what) const {
    if (at > size || bytes_ > size - at)
      Fail(std::string("outside of the ") + std::to_string(size) + " bytes of " + what, at);
    return {base + at, nullptr};
  }
  void CheckRace(Races& races, std::uint64_t at) const {
    const std::string race = races.Check(at, bytes_, kind_, warp_.Now(lane_));
    if (!race.empty()) Fail("a race: " + race, at);
  }
  Reached Shared(std::uint64_t at) const {
    Block& block = warp_.block();
    Reached out = Inside(block.shared.data(), block.shared.size(), at, "shared memory");
    CheckRace(block.shared_races, at);
    out.written = block.shared_written.data() + at;
    return out;
  }
  Reached Global(std::uint64_t at) const {
    const Allocation* found = warp_.grid().memory.Find(at, bytes_);
    if (found == nullptr) Fail("in no allocation", at);
    CheckRace(warp_.grid().races, at);
    return {reinterpret_cast<std::uint8_t*>(at),
            found->written == nullptr ? nullptr : found->written + (at - found->begin)};
  }

  const Instruction& code_;
  Warp& warp_;
  int lane_;
  std::uint32_t bytes_;
  AccessKind kind_;
};

std::uint64_t AddressOf(const Instruction& code, Warp& warp, int lane) {
  return warp.Value(code.address.base, lane) + static_cast<std::uint64_t>(code.address.offset);
}

void Put(Warp& warp, Place place, int lane, std::uint64_t value) {
  if (place.wide)
    warp.Slots<std::uint64_t>(place)[lane] = value;
  else
    warp.Slots<std::uint32_t>(place)[lane] = static_cast<std::uint32_t>(value);
}

void CheckWritten(Warp& warp, int lane, const Reached& at, std::uint32_t bytes) {
  if (at.written == nullptr) return;
  for (std::uint32_t i = 0; i < bytes; ++i)
    if (at.written[i] == 0)
      warp.Fail(lane, "a load of byte " + std::to_string(i) + " of " + std::to_string(bytes) +
                          " that nobody has written");
}

// detail: 1 = signed elements.
void Load(const Instruction& code, Warp& warp, Mask mask) {
  const std::uint32_t element = code.bytes;
  const auto all = static_cast<std::uint32_t>(code.to.size()) * element;
  ForLanes(mask, [&](int lane) {
    const Reached at = Reach(code, warp, lane, all, {.write = false, .atomic = code.strong})
                           .At(AddressOf(code, warp, lane));
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
    const Reached at = Reach(code, warp, lane, all, {.write = true, .atomic = code.strong})
                           .At(AddressOf(code, warp, lane));
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
    const std::uint64_t address = AddressOf(code, warp, lane);
    const Reached at =
        Reach(code, warp, lane, sizeof(T), {.write = true, .atomic = true}).At(address);
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
