// The importance of each column of a matrix: the mean square of its inputs on a text. Stored in
// llama.cpp's format, so that both programs can use the files.
//
// GGUF with general.type "imatrix": for each matrix NAME f32 tensors NAME.in_sum2 [experts,
// columns], sums of squares, and NAME.counts [experts, 1], the tokens that they are of. Older files
// (.dat) hold the same in a layout of their own and are read, too. Source: llama.cpp's
// tools/imatrix.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::model {

class Importance {
 public:
  struct Matrix {
    int columns = 0;
    std::vector<float> sums;    // [experts, columns]
    std::vector<float> counts;  // [experts]
  };
  std::map<std::string, Matrix> matrices;  // by the weights' tensor
  std::vector<std::string> datasets;       // texts that they are of
  int chunks = 0, chunk_tokens = 0;

  // The importance of each expert's columns: means, 1 where no token came by. Empty: nothing is
  // known of the tensor. InvalidArgument names a tensor of another shape.
  Result<std::vector<float>> Of(const std::string& tensor, int experts, int columns) const;

  // OK if Write may write to `path`: it replaces an earlier matrix, and no other GGUF file.
  static Status CheckReplaceable(const std::string& path);
  // Errors as base::FileWriter, and as CheckReplaceable.
  Status Write(const std::string& path) const;
  // DataLoss or InvalidArgument describes the error in the file; errors as base::OpenFile.
  static Result<Importance> Read(const std::string& path);
};

}  // namespace thermocline::model
