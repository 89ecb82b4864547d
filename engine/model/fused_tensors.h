// Tensors that hold several: parts of one file's tensor, and one tensor of many files' parts.
#pragma once

#include <vector>

#include "engine/model/model_file.h"

namespace thermocline::model {

// Gate and up in one tensor, "ffn_gate_up_*": of each matrix the gate's rows first.
bool IsGateUp(const TensorInfo& tensor);
// The two, "ffn_gate_*" and "ffn_up_*". InvalidArgument: an odd number of rows.
Result<std::vector<TensorInfo>> SplitGateUp(const TensorInfo& tensor);

// Makes `part` the matrix of `expert` in the tensor of the same name, of all experts, which the
// first one adds. DataLoss: twice, beyond the number of experts, or of another shape than others.
Status AddPiece(const TensorInfo& part, int expert, ModelFile& model);
// InvalidArgument names an expert that no file brought.
Status CheckPieces(const ModelFile& model);

}  // namespace thermocline::model
