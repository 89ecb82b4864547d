// Tensors that hold several: parts of one file's tensor, and one tensor of many files' parts.
#pragma once

#include <vector>

#include "engine/model/model_file.h"

namespace thermocline::model {

// Gate and up in one tensor, "ffn_gate_up*": of each matrix the gate's rows first.
bool IsGateUp(const TensorInfo& tensor);
// The two, "ffn_gate*" and "ffn_up*". InvalidArgument: an odd number of rows.
Result<std::vector<TensorInfo>> SplitGateUp(const TensorInfo& tensor);

// True if q, k and v are one below the other in one tensor of a Hugging Face folder.
bool IsFusedRows(const TensorInfo& tensor);
// "attn_q", "attn_k" and "attn_v" of "attn_qkv*": rows of q, then k, then v; Persimmon's has them
// head by head, as its checkpoints do. InvalidArgument: another number of rows.
Result<std::vector<TensorInfo>> SplitQkv(const TensorInfo& tensor, const ModelConfig& config);

// Makes `part` the matrix of `expert` in the tensor of the same name, of all experts, which the
// first one adds. DataLoss: twice, beyond the number of experts, or of another shape than others.
Status AddPiece(const TensorInfo& part, int expert, ModelFile& model);
// InvalidArgument names an expert that no file brought.
Status CheckPieces(const ModelFile& model);

}  // namespace thermocline::model
