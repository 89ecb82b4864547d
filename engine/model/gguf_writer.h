// Writes a model as GGUF v3 that other tools read.
#pragma once

#include <functional>
#include <string>

#include "engine/model/model_file.h"

namespace thermocline::model {

struct GgufWriteOptions {
  // Type of the matrices; kept as stored where it is nothing. Norms and biases stay f32. The
  // embedding and the head become q8_0, or q6_k under a K type. Rows that are no multiple of the
  // block become q8_0, or f16.
  std::optional<kernels::DType> type;
  std::string name;  // general.name
  int threads = 1;
  std::function<void(double)> on_progress;  // share done, 0 to 1; may be empty
};

// The types WriteGguf can quantise to, by name, and back.
std::vector<std::string> QuantizableTypes();
std::optional<kernels::DType> TypeByName(const std::string& name);

// Writes `path` atomically. Fails as reading and writing do; Unimplemented for a type without a
// quantiser.
Status WriteGguf(const ModelFile& model, const std::string& path, const GgufWriteOptions& options);

}  // namespace thermocline::model
