// Shared parts of fuzz targets: an input as a file, as a folder, or in parts.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace thermocline::fuzz {

inline std::string_view TextOf(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The input as a file of this process.
class InputFile {
 public:
  explicit InputFile(std::string_view bytes) : file_(memfd_create("input", 0)) {
    if (write(file_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) _exit(1);
  }
  ~InputFile() { close(file_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

 private:
  const int file_;
};

// The parts of an input, separated by lines "--8<--"; `count` of them, the last ones empty if there
// are fewer.
inline std::vector<std::string_view> PartsOf(std::string_view input, std::size_t count) {
  constexpr std::string_view kCut = "\n--8<--\n";
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < count) {
    const std::size_t cut = input.find(kCut);
    if (cut == std::string_view::npos) break;
    parts.push_back(input.substr(0, cut));
    input.remove_prefix(cut + kCut.size());
  }
  parts.push_back(input);
  parts.resize(count);
  return parts;
}

// A folder in memory with files of these names, removed at the end.
class InputFolder {
 public:
  InputFolder() : path_("/dev/shm/thermocline-fuzz-" + std::to_string(getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~InputFolder() { std::filesystem::remove_all(path_); }
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;
  void Add(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace thermocline::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
