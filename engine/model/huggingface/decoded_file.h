// The decoded weights of a Hugging Face folder, as a file whose tensors are computed as they are
// read. So all that follows (names, heads, experts, fused tensors) knows nothing of packing.
#pragma once

#include <string>
#include <vector>

#include "engine/model/model_file.h"

namespace thermocline::model {

// A matrix [rows, cols] in `type`, F16 or BF16, to which the floats of `source` are rounded.
struct DecodedMatrix {
  std::int64_t rows = 0, cols = 0;
  kernels::DType type = kernels::DType::kBF16;
  FloatSource source;
};

class DecodedFile : public base::File {
 public:
  explicit DecodedFile(std::string path) : path_(std::move(path)) {}

  // Appends a matrix and returns its first byte here. Before all reads.
  std::uint64_t Add(DecodedMatrix matrix);

  const std::string& path() const override { return path_; }
  std::uint64_t size() const override { return bytes_; }
  // Thread-safe. Errors as those of the sources.
  Status ReadAt(std::uint64_t offset, std::span<std::byte> out) const override;

 private:
  struct Placed {
    std::uint64_t begin = 0;
    DecodedMatrix matrix;
  };

  const std::string path_;
  std::vector<Placed> matrices_;
  std::uint64_t bytes_ = 0;
};

}  // namespace thermocline::model
