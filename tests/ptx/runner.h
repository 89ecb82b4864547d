// Lets the emulator's launches run as PTX: while one of these lives, every kernel is the one that
// nvcc made.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_emulated/emulator.h"
#include "tests/ptx/module.h"

namespace ptx {

class Runner {
 public:
  // Changes a file's text before it is read, to see that a mistake is found.
  using Edit = std::function<void(const std::string& file, std::string& text)>;
  // All *.ptx of `folder`. Throws std::runtime_error where one cannot be read.
  explicit Runner(const std::string& folder, const Edit& edit = {});
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Since the last call. A finding ends its launch; what follows still runs.
  std::vector<std::string> TakeFindings();
  // Demangled; all there are, and those that have run.
  std::set<std::string> kernels() const;
  std::set<std::string> run() const;
  void SetSeed(std::uint64_t seed) { seed_ = seed; }

 private:
  void Run(const cuda_emulated::Kernel& kernel);

  std::vector<std::unique_ptr<Module>> modules_;
  std::map<std::string, const Kernel*> kernels_;
  mutable std::mutex mutex_;  // of what follows: streams launch at the same time
  std::set<std::string> run_;
  std::vector<std::string> findings_;
  std::uint64_t seed_ = 1;
};

}  // namespace ptx
