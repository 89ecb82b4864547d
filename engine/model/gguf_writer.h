// Writes a model as GGUF v3 that other tools read.
#pragma once

#include <functional>
#include <string>

#include "engine/model/importance.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// Neurons of the down projection: columns of `ffn_down` as everywhere, or rows of `ffn_down_t`
// (powerinfer.h), whose zeros need not be read.
enum class DownLayout {
  kAuto,  // rows if the activation has true zeros and the weights are not copied nor ternary
  kColumns,
  kRows,
};

struct GgufWriteOptions {
  // Type of the matrices; kept as stored where it is nothing. Norms and biases stay f32. The
  // embedding and the head become q8_0, or q6_k under a K type. Rows that are no multiple of the
  // block become q8_0, or f16. Neuron-major matrices are f32, f16, bf16, q8_0, q4_0, q4_1 or q4_k:
  // q8_0 where another type is asked for.
  std::optional<kernels::DType> type;
  DownLayout down = DownLayout::kAuto;
  bool input_major = false;                // adds the copies of mode inputs (input_major.h)
  const Importance* importance = nullptr;  // of the columns that are rounded; null: all the same
  bool powerinfer = false;                 // the magic is PWRI: for files with PowerInfer's tensors
  std::string name;                        // general.name
  int threads = 1;
  std::function<void(double)> on_progress;  // share done, 0 to 1; may be empty
};

// The types WriteGguf can quantise to, by name, and back. llama.cpp's mixes, such as q4_k_m, are
// names of the type that most of their matrices have, and here all have.
std::vector<std::string> QuantizableTypes();
std::optional<kernels::DType> TypeByName(std::string name);

// Writes `path` atomically. Fails as reading and writing do; Unimplemented for a type without a
// quantiser.
Status WriteGguf(const ModelFile& model, const std::string& path, const GgufWriteOptions& options);

}  // namespace thermocline::model
