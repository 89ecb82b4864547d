// Names of this program's functions, of those that the linker does not export, too.
#pragma once

#include <string>

namespace ptx {

// The demangled name of the function at `address`; throws std::runtime_error where there is none.
std::string FunctionName(const void* address);
// A mangled name as a person writes it, CUDA's namespace as the emulator's.
std::string Demangled(const std::string& name);

}  // namespace ptx
