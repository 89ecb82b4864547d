// Parses PTX as written by nvcc into kernels whose registers have places in a warp's register file.
//
// Every operand of an instruction is such a place: registers, immediates, special registers and
// addresses of variables. Constants are written to their places when the warp begins. Only the
// features of our kernels are supported: no calls, no indirect branches, no textures.
// Source: PTX ISA 9.0.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ptx {

class Warp;
using Mask = std::uint32_t;  // lanes of a warp

// An offset in a warp's register file: 32 lanes of 4 or 8 bytes each.
struct Place {
  std::uint32_t at = 0;
  bool wide = false;  // 8 bytes per lane
};

struct Address {
  Place base;
  std::int64_t offset = 0;
};

enum class Space : std::uint8_t { kGeneric, kGlobal, kShared, kLocal, kParam };

struct Instruction;
using Run = void (*)(const Instruction&, Warp&, Mask);

struct Instruction {
  Run run = nullptr;
  std::vector<Place> to, from;
  Address address = {}, source = {};  // source: the second address, of a copy
  std::int64_t detail = 0;            // defined by the instruction's own file
  int target = -1;                    // of a branch
  Place guard = {};
  bool guarded = false, guard_not = false;
  // The lanes of the mask in the last operand must reach it together.
  bool converges = false;
  Space space = Space::kGeneric;
  std::uint8_t bytes = 0;  // of an element in memory
  bool strong = false;     // atomic, volatile, acquire or release
  std::uint32_t line = 0;  // in the text
  std::string_view text = {};
};

// The initial value of a place when a warp begins.
enum class Special : std::uint8_t {
  kNone,
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLane,
  kWarp,
  kDynamicShared
};
struct Preset {
  Place place;
  std::uint64_t value = 0;
  Special special = Special::kNone;
};

struct Kernel {
  std::string name;  // mangled
  std::vector<Instruction> code;
  std::vector<Preset> presets;
  std::vector<std::uint32_t> params;  // bytes of each
  std::vector<std::uint32_t> param_at;
  std::uint32_t param_bytes = 0, shared_bytes = 0, local_bytes = 0, register_bytes = 0;
};

class Module {
 public:
  // `name` is for messages. Throws std::runtime_error, with the line, on unknown PTX.
  Module(const std::string& name, std::string text);
  const std::vector<Kernel>& kernels() const { return kernels_; }

 private:
  std::string text_;
  std::vector<Kernel> kernels_;
};

// The parts of an opcode, separated by dots.
struct Opcode {
  std::vector<std::string_view> parts;
  bool Has(std::string_view part) const;
  std::string_view type() const { return parts.back(); }
};
// Sets run, detail, space, bytes, strong and converges. Throws std::runtime_error if the
// interpreter does not know the opcode.
void Decode(const Opcode& opcode, Instruction& out);
// True if operand `index`, destinations first, has 8 bytes per lane if it is an immediate.
bool IsWide(const Opcode& opcode, int index);

}  // namespace ptx
