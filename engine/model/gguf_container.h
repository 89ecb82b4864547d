// The contents of a GGUF file, before its meaning.
#pragma once

#include <vector>

#include "engine/model/model_file.h"

namespace thermocline::model {

struct GgufContainer {
  bool powerinfer = false;  // under the magic PWRI
  std::uint32_t version = 0;
  Json metadata{Json::Object()};
  std::vector<TensorInfo> tensors;  // offsets are the file's
};

// `index`: of the file among its model's. InvalidArgument: no GGUF; Unimplemented: another version
// or type; DataLoss names the key or tensor that is damaged; else as File::ReadAt. All name the
// file.
Result<GgufContainer> ReadGgufContainer(const base::File& file, int index);

}  // namespace thermocline::model
