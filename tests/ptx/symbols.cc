#include "tests/ptx/symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <vector>

namespace ptx {
namespace {

std::uintptr_t LoadAddress() {
  std::uintptr_t at = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uintptr_t*>(out) = info->dlpi_addr;
        return 1;  // the first is the program itself
      },
      &at);
  return at;
}

std::map<std::uintptr_t, std::string> ReadSymbols() {
  std::ifstream in("/proc/self/exe", std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
  const auto at = [&]<typename T>(std::size_t offset, T& out) {
    if (offset + sizeof(T) > file.size()) throw std::runtime_error("a damaged program");
    std::memcpy(&out, file.data() + offset, sizeof(T));
  };
  Elf64_Ehdr header;
  at(0, header);
  std::map<std::uintptr_t, std::string> names;
  for (int i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section, strings;
    at(header.e_shoff + static_cast<std::size_t>(i) * sizeof(section), section);
    if (section.sh_type != SHT_SYMTAB) continue;
    at(header.e_shoff + section.sh_link * sizeof(strings), strings);
    for (std::size_t k = 0; k < section.sh_size / sizeof(Elf64_Sym); ++k) {
      Elf64_Sym symbol;
      at(section.sh_offset + k * sizeof(symbol), symbol);
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value != 0)
        names[symbol.st_value] = file.data() + strings.sh_offset + symbol.st_name;
    }
  }
  return names;
}

}  // namespace

std::string Demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  std::string out = status == 0 ? text.get() : name;
  const std::string from = "kernels::cuda::", to = "kernels::emulated::";
  for (std::size_t i; (i = out.find(from)) != std::string::npos;) out.replace(i, from.size(), to);
  return out;
}

std::string FunctionName(const void* address) {
  static const std::map<std::uintptr_t, std::string> kNames = ReadSymbols();
  const auto found = kNames.find(reinterpret_cast<std::uintptr_t>(address) - LoadAddress());
  if (found == kNames.end()) throw std::runtime_error("no symbol for a kernel: is it stripped?");
  return Demangled(found->second);
}

}  // namespace ptx
