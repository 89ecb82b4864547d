// Reads columns of a stored matrix as rows of floats, to convert down projections between
// column-major and neuron-major layout.
#pragma once

#include <span>

#include "engine/base/worker_pool.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

// Returns the number of columns of a matrix with `rows` rows that fit 256 MiB of floats: a multiple
// of every type's block.
std::int64_t ColumnsAtOnce(std::int64_t rows);

// Columns [first, first + count) of `tensor`, in one pass over its rows: out[c, r] = tensor[r,
// first + c]. Requires: `first` a multiple of 256; so is `count`, or it ends with the matrix; out
// of count * rows floats; a type that can be read.
Status ReadColumns(const ModelFile& model, const TensorInfo& tensor, std::int64_t first,
                   std::int64_t count, base::WorkerPool& pool, std::span<float> out);

}  // namespace thermocline::model
