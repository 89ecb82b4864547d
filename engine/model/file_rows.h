// Rows of a matrix that stays in its file, for tables that are too large for memory.
#pragma once

#include <memory>
#include <span>

#include "engine/model/model_file.h"

namespace thermocline::model {

// Thread-safe. Reads through the page cache, which keeps used rows while memory is free; opens the
// file again, so the ModelFile may be destroyed.
class FileRows {
 public:
  // Unimplemented if the rows are not stored in the form they are read in; errors as
  // base::OpenFile.
  static Result<std::unique_ptr<FileRows>> Open(const ModelFile& model, const TensorInfo& tensor);

  // DataLoss names the first row with a scale, or a float, that is NaN or infinite.
  Status Verify() const;
  // Row `row` as floats [cols]. Errors as base::File::ReadAt. Requires: 0 <= row < rows().
  Status Read(std::int64_t row, std::span<float> out) const;
  std::int64_t rows() const { return tensor_.rows; }
  std::int64_t row_bytes() const { return tensor_.row_bytes(); }

 private:
  explicit FileRows(const TensorInfo& tensor) : tensor_(tensor) {}

  TensorInfo tensor_;
  std::unique_ptr<base::File> file_;
};

}  // namespace thermocline::model
