// Copies from global to shared memory that a thread starts and waits for later (cp.async).
//
// The source is read when the copy starts. The data is in shared memory once the thread has waited
// for the copy's group; until then no thread may access those bytes. For the race checks the bytes
// are written twice: when the copy starts and when the wait ends. Source: PTX ISA 9.0, 9.7.9.25.
#include <algorithm>
#include <utility>

#include "tests/ptx/handlers.h"
#include "tests/ptx/reach.h"

namespace ptx {
namespace {

constexpr AccessKind kRead = {.write = false}, kWrite = {.write = true};

// from: bytes to write and, optionally, bytes to read; the others become zero.
void Start(const Instruction& code, Warp& warp, Mask mask) {
  ForLanes(mask, [&](int lane) {
    const auto bytes = static_cast<std::uint32_t>(warp.Value(code.from[0], lane));
    const auto read =
        code.from.size() > 1 ? static_cast<std::uint32_t>(warp.Value(code.from[1], lane)) : bytes;
    if (read > bytes) warp.Fail(lane, "a copy that reads more than it writes");
    AsyncCopy copy{AddressOf(code.address, warp, lane), bytes, {}};
    const Reached to = Reach(Space::kShared, warp, lane, bytes, kWrite).At(copy.to);
    CheckNotUnderWay(warp, lane, to, bytes);
    if (read > 0) {
      const Reached from = Reach(Space::kGlobal, warp, lane, read, kRead, bytes)
                               .At(AddressOf(code.source, warp, lane));
      CheckWritten(warp, lane, from, read);
      std::copy_n(from.bytes, read, copy.bytes.begin());
    }
    std::fill_n(to.written, bytes, kUnderWay);
    warp.copies(lane).open.push_back(copy);
  });
}

void Commit(const Instruction&, Warp& warp, Mask mask) {
  ForLanes(mask, [&](int lane) {
    AsyncCopies& copies = warp.copies(lane);
    copies.groups.push_back(std::exchange(copies.open, {}));
  });
}

// from: the number of latest groups that may still be pending.
void Wait(const Instruction& code, Warp& warp, Mask mask) {
  ForLanes(mask, [&](int lane) {
    auto& groups = warp.copies(lane).groups;
    for (const auto left = warp.Value(code.from[0], lane); groups.size() > left;
         groups.pop_front()) {
      for (const AsyncCopy& copy : groups.front()) {
        const Reached to = Reach(Space::kShared, warp, lane, copy.size, kWrite).At(copy.to);
        std::copy_n(copy.bytes.begin(), copy.size, to.bytes);
        std::fill_n(to.written, copy.size, kIs);
      }
    }
  });
}

}  // namespace

Run FindCopy(const Opcode& opcode, Instruction&) {
  if (opcode.parts[0] != "cp" || !opcode.Has("async")) return nullptr;
  if (opcode.Has("commit_group")) return Commit;
  if (opcode.Has("wait_group")) return Wait;
  return opcode.Has("shared") && opcode.Has("global") ? Start : nullptr;
}

}  // namespace ptx
