// Writes a matrix of floats in NumPy's .npy format.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/base/file.h"

namespace thermocline::tools {

// Replaces only an earlier .npy file. Rows of `cols` f32 are appended one at a time. Requires:
// exactly `rows` rows before Commit.
class NpyWriter {
 public:
  static Result<std::unique_ptr<NpyWriter>> Create(const std::string& path, std::int64_t rows,
                                                   std::int64_t cols);
  Status Append(std::span<const float> row) { return file_->Append(std::as_bytes(row)); }
  Status Commit() { return file_->Commit(); }

 private:
  std::unique_ptr<base::FileWriter> file_;
};

}  // namespace thermocline::tools
