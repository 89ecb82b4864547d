// Names of this program's functions, including those that the linker does not export.
#pragma once

#include <string>

namespace ptx {

// The demangled name of the function at `address`; throws std::runtime_error if there is none.
std::string FunctionName(const void* address);
// The readable form of a mangled name, with CUDA's namespace as the emulator's.
std::string Demangled(const std::string& name);

}  // namespace ptx
