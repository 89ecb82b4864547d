// Fused tensors: splits one file's tensor into parts, and joins parts from several files.
#pragma once

#include <vector>

#include "engine/model/model_file.h"

namespace thermocline::model {

// True for gate and up in one tensor, "ffn_gate_up*": of each matrix the gate's rows first.
bool IsGateUp(const TensorInfo& tensor);
// Returns the two parts, "ffn_gate*" and "ffn_up*". InvalidArgument: an odd number of rows.
Result<std::vector<TensorInfo>> SplitGateUp(const TensorInfo& tensor);

// True if q, k and v are consecutive rows of one tensor of a Hugging Face folder.
bool IsFusedRows(const TensorInfo& tensor);
// Returns "attn_q", "attn_k" and "attn_v" of "attn_qkv*": rows of q, then k, then v; Persimmon's
// are stored head by head, as in its checkpoints. InvalidArgument: another number of rows.
Result<std::vector<TensorInfo>> SplitQkv(const TensorInfo& tensor, const ModelConfig& config);

// Makes `part` the matrix of `expert` in the tensor of the same name of all experts, which the
// first part creates. DataLoss: a duplicate, an expert out of range, or a different shape.
Status AddPiece(const TensorInfo& part, int expert, ModelFile& model);
// InvalidArgument names an expert that is missing in all files.
Status CheckPieces(const ModelFile& model);

}  // namespace thermocline::model
