#include "tests/ptx/runner.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "tests/cuda_emulated/builtins.h"
#include "tests/ptx/launch.h"
#include "tests/ptx/symbols.h"

namespace ptx {

Runner::Runner(const std::string& folder, const Edit& edit) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".ptx") continue;
    std::ifstream in(entry.path());
    std::string text{std::istreambuf_iterator<char>(in), {}};
    if (edit) edit(entry.path().stem(), text);
    modules_.push_back(std::make_unique<Module>(entry.path().string(), std::move(text)));
    for (const Kernel& kernel : modules_.back()->kernels())
      kernels_[Demangled(kernel.name)] = &kernel;
  }
  if (kernels_.empty()) throw std::runtime_error(folder + ": no PTX");
  cuda_emulated::RunKernelsBy([this](const cuda_emulated::Kernel& kernel) { Run(kernel); });
}

Runner::~Runner() { cuda_emulated::RunKernelsBy(nullptr); }

void Runner::Run(const cuda_emulated::Kernel& launched) {
  const std::string name = FunctionName(launched.call.kernel);
  const auto found = kernels_.find(name);
  std::uint64_t seed;
  {
    const std::lock_guard lock(mutex_);
    seed = seed_++;
    run_.insert(name);
    if (found == kernels_.end()) return findings_.push_back("no PTX of " + name);
  }
  std::vector<Allocation> memory;
  for (const cuda_emulated::Memory& one : cuda_emulated::AllMemory())
    memory.push_back({one.begin, one.end, one.written});
  const dim3 &grid = launched.grid, &block = launched.block;
  try {
    Launch({.kernel = *found->second,
            .blocks = {grid.x, grid.y, grid.z},
            .threads = {block.x, block.y, block.z},
            .dynamic_shared_bytes = static_cast<std::uint32_t>(launched.shared_bytes),
            .arguments = launched.call.arguments,
            .seed = seed,
            .where = std::string(launched.where.file) + ":" + std::to_string(launched.where.line)},
           Allocations(std::move(memory)));
  } catch (const Finding& finding) {
    const std::lock_guard lock(mutex_);
    findings_.emplace_back(finding.what());
  }
}

std::vector<std::string> Runner::TakeFindings() {
  const std::lock_guard lock(mutex_);
  return std::exchange(findings_, {});
}
std::set<std::string> Runner::kernels() const {
  std::set<std::string> out;
  for (const auto& [name, kernel] : kernels_) out.insert(name);
  return out;
}
std::set<std::string> Runner::run() const {
  const std::lock_guard lock(mutex_);
  return run_;
}

}  // namespace ptx
