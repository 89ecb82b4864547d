// The plan of WriteGguf for each tensor: its name, type and layout.
#pragma once

#include "engine/model/gguf/writer.h"

namespace thermocline::model {

struct PlannedTensor {
  const TensorInfo* tensor = nullptr;
  std::string name;  // in the output file, like the other fields
  kernels::DType type = kernels::DType::kF32;
  bool transposed = false;  // rows are the tensor's columns
  std::int64_t rows() const { return transposed ? tensor->cols : tensor->rows; }
  std::int64_t cols() const { return transposed ? tensor->rows : tensor->cols; }
};

// True if a tensor is f32 in every file: biases of all experts, and the tensors that choose experts
// or streams, which are small and have great influence.
bool StaysFloat(std::string_view tensor);

// Returns the plan in the order of `model.tensors`, which must outlive it; stored input-major
// copies are left out, and requested ones come last. Logs options that would improve the file, and
// deviations from the request. Unimplemented: a tensor's type cannot be read. InvalidArgument: a
// down projection to be transposed has the wrong shape, or input-major copies were requested and a
// down projection is neuron-major. Both name the tensor.
Result<std::vector<PlannedTensor>> PlanGguf(const ModelFile& model,
                                            const GgufWriteOptions& options);

}  // namespace thermocline::model
