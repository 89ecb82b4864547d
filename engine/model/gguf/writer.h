// Writes a model as GGUF v3, which other tools can read.
#pragma once

#include <functional>
#include <string>

#include "engine/model/gguf/importance.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// The layout of the down projection: neurons are columns of `ffn_down`, as in other files, or rows
// of `ffn_down_t` (powerinfer.h), where rows of zero neurons need not be read.
enum class DownLayout {
  kAuto,  // rows if activations have exact zeros and the weights are not copied nor ternary
  kColumns,
  kRows,
};

struct GgufWriteOptions {
  // Type of the matrices; without a value they stay as stored. Norms and biases stay f32. The
  // embedding and the head become q8_0, or q6_k under a K type. Rows that are not a multiple of the
  // block become q8_0, or f16. Neuron-major matrices are f32, f16, bf16, q8_0, q4_0, q4_1 or q4_k:
  // q8_0 if another type is requested.
  std::optional<kernels::DType> type;
  DownLayout down = DownLayout::kAuto;
  bool input_major = false;                // adds the copies of mode inputs (input_major.h)
  const Importance* importance = nullptr;  // of the columns, for rounding; null: equal
  bool powerinfer = false;  // writes the magic PWRI, for files with PowerInfer's tensors
  std::string name;         // general.name
  int threads = 1;
  std::function<void(double)> on_progress;  // completed share, 0 to 1; may be empty
};

// The types that WriteGguf can quantise to, by name, and the reverse. llama.cpp's mixes, such as
// q4_k_m, stand for the type of most of their matrices, which is used for all.
std::vector<std::string> QuantizableTypes();
std::optional<kernels::DType> TypeByName(std::string name);

// Writes `path` atomically. Errors as reading and writing; Unimplemented for a type without a
// quantiser.
Status WriteGguf(const ModelFile& model, const std::string& path, const GgufWriteOptions& options);

}  // namespace thermocline::model
