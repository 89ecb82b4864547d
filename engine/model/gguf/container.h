// The contents of a GGUF file, before interpretation.
#pragma once

#include <vector>

#include "engine/model/model_file.h"

namespace thermocline::model {

struct GgufContainer {
  bool powerinfer = false;  // the magic is PWRI
  std::uint32_t version = 0;
  Json metadata{Json::Object()};
  std::vector<TensorInfo> tensors;  // offsets are relative to the file
};

// `index`: of the file among its model's files. InvalidArgument: not a GGUF file; Unimplemented:
// another version or type; DataLoss names the damaged key or tensor; other errors as File::ReadAt.
// All name the file.
Result<GgufContainer> ReadGgufContainer(const base::File& file, int index);

}  // namespace thermocline::model
