// Copies of a layer's matrices in which what one input multiplies lies together, so that it can be
// left unread: W transposed, matrices of the same input side by side.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/base/worker_pool.h"
#include "engine/model/weights.h"

namespace thermocline::model {

// The inputs that a layer's matrices multiply.
enum class InputKind { kAttention, kAttnOutput, kFfn, kDown };
inline constexpr int kInputKinds = 4;
inline constexpr std::array<std::string_view, kInputKinds> kInputKindNames = {
    "attention", "attention output", "feed-forward", "down"};

// The matrices of one kind: q, k and v; the output; gate and up; down. Without data where the layer
// has none: k and v of another layer's, gate of a network without one, down neuron-major.
std::vector<const Linear*> MatricesOf(const LayerWeights& layer, InputKind kind);
// Inputs of a kind. Requires: the layer has one of its matrices, or down_rows.
int InputsOf(const LayerWeights& layer, InputKind kind);

// [inputs, outputs of all matrices of a kind], of a type that kernels::CanSumInputs.
struct InputMatrix {
  kernels::RowMatrix rows;        // without data: there is no copy
  std::vector<float> scales_max;  // [outputs / 32] the largest scale of a block over all inputs
};

struct InputMajor {
  // [L][kind]; without data where the layer has no such matrix along columns, or its outputs are no
  // whole blocks.
  std::vector<std::array<InputMatrix, kInputKinds>> layers;
  base::HugeBuffer memory;
};

// Bytes of all copies; and before the weights are loaded, at most.
std::size_t InputMajorBytes(const Weights& weights);
std::size_t InputMajorBytes(const ModelFile& file);
// Read from `file` where it has them (`convert --layout inputs`); else, or if it is null, made of
// the weights: in Q4_0 where these have four bits or fewer, else in Q8_0; rounded once more, since
// blocks lie along other weights then. Takes floats of one kind of a layer besides while it works.
// ResourceExhausted; errors of reading; DataLoss for scales that are no numbers.
Result<InputMajor> MakeInputMajor(const Weights& weights, const ModelFile* file,
                                  base::WorkerPool& pool);

// In files, a copy of blk.0.attn_q.weight is blk.0.attn_q.inputs: [inputs, outputs]. "" for the
// name of a tensor that has none.
inline constexpr std::string_view kInputMajorSuffix = ".inputs";
std::string InputMajorName(std::string_view tensor);
// The type of the copies of a matrix of `type` with rows of `cols`.
kernels::DType InputMajorType(kernels::DType type, int cols);

}  // namespace thermocline::model
