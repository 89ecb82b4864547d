// Runs the emulator's launches as PTX: while a Runner lives, every kernel is the one compiled by
// nvcc.
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
  // Changes a file's text before it is parsed, to test that a bug is detected.
  using Edit = std::function<void(const std::string& file, std::string& text)>;
  // Parses all *.ptx of `folder`. Throws std::runtime_error if one cannot be read.
  explicit Runner(const std::string& folder, const Edit& edit = {});
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // The findings since the last call. A finding ends its launch; later launches still run.
  std::vector<std::string> TakeFindings();
  // Demangled names of all kernels, and of those that have run.
  std::set<std::string> kernels() const;
  std::set<std::string> run() const;
  void SetSeed(std::uint64_t seed) { seed_ = seed; }

 private:
  void Run(const cuda_emulated::Kernel& kernel);

  std::vector<std::unique_ptr<Module>> modules_;
  std::map<std::string, const Kernel*> kernels_;
  mutable std::mutex mutex_;  // guards the members below, since streams launch concurrently
  std::set<std::string> run_;
  std::vector<std::string> findings_;
  std::uint64_t seed_ = 1;
};

}  // namespace ptx
