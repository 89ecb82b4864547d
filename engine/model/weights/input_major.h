// Copies of a layer's matrices in which the weights of one input are contiguous, so that they can
// be skipped: W transposed, with matrices of the same input side by side.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/base/worker_pool.h"
#include "engine/model/weights/weights.h"

namespace thermocline::model {

// The inputs that a layer's matrices multiply.
enum class InputKind { kAttention, kAttnOutput, kFfn, kDown };
inline constexpr int kInputKinds = 4;
inline constexpr std::array<std::string_view, kInputKinds> kInputKindNames = {
    "attention", "attention output", "feed-forward", "down"};

// The matrices of one kind: q, k and v; the output; gate and up; down. Empty if the layer has none:
// k and v of another layer, gate of a network without one, neuron-major down.
std::vector<const Linear*> MatricesOf(const LayerWeights& layer, InputKind kind);
// The number of inputs of a kind. Requires: the layer has one of its matrices, or down_rows.
int InputsOf(const LayerWeights& layer, InputKind kind);

// [inputs, outputs of all matrices of a kind], of a type that kernels::CanSumInputs supports.
struct InputMatrix {
  kernels::RowMatrix rows;        // without data: there is no copy
  std::vector<float> scales_max;  // [outputs / 32] the largest scale of a block over all inputs
};

struct InputMajor {
  // [L][kind]; without data if the layer has no such matrix along columns, or if its number of
  // outputs is not a multiple of the block.
  std::vector<std::array<InputMatrix, kInputKinds>> layers;
  base::HugeBuffer memory;
};

// Bytes of all copies; the second form is an upper bound before the weights are loaded.
std::size_t InputMajorBytes(const Weights& weights);
std::size_t InputMajorBytes(const ModelFile& file);
// Reads the copies from `file` if it has them (`convert --layout inputs`). Otherwise, or if `file`
// is null, computes them from the weights: in Q4_0 if these have four bits or fewer, else in Q8_0;
// rounded again, since blocks then contain other weights. Temporarily needs floats of one kind of a
// layer. ResourceExhausted; errors of reading; DataLoss for scales that are not finite.
Result<InputMajor> MakeInputMajor(const Weights& weights, const ModelFile* file,
                                  base::WorkerPool& pool);

// In files, the copy of blk.0.attn_q.weight is blk.0.attn_q.inputs: [inputs, outputs].
// InputMajorName returns "" for a tensor without copies.
inline constexpr std::string_view kInputMajorSuffix = ".inputs";
std::string InputMajorName(std::string_view tensor);
// The type of the copies of a matrix of `type` with rows of `cols`.
kernels::DType InputMajorType(kernels::DType type, int cols);

}  // namespace thermocline::model
