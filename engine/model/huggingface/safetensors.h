// Headers of safetensors files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/file.h"

namespace thermocline::model {

// A tensor as its file names it.
struct StoredTensor {
  std::string name, type;           // "model.norm.weight", "BF16"
  std::vector<std::int64_t> dims;   // outermost first; none of a single number
  int file = 0;                     // index into ModelFile::files
  std::uint64_t data_begin = 0;     // in the file, bytes
  std::int64_t begin = 0, end = 0;  // from data_begin, unchecked

  // The place of the first byte. Requires: a tensor that CheckInside accepts.
  std::uint64_t offset() const { return data_begin + begin; }
};

// DataLoss: the tensor is not `bytes` bytes inside its file.
Status CheckInside(const StoredTensor& tensor, std::uint64_t bytes, const base::File& file);

// The tensors of a file in the header's order. `index`: of the file. DataLoss: the header is
// damaged, or an entry lacks a member; ResourceExhausted: more than a million values.
Result<std::vector<StoredTensor>> ReadSafetensors(const base::File& file, int index);

}  // namespace thermocline::model
