// Packed weights whose rows lie one after the other: FP8, NVFP4, MX types and integers, with scales
// of blocks.
#pragma once

#include <optional>

#include "engine/model/code_values.h"
#include "engine/model/huggingface/stored_set.h"

namespace thermocline::model {

// A matrix [rows, cols] of codes: element = (value of its code - that of its block's zero point) *
// (scale of its block times, or divided by, the factor), in floats.
struct PackedRows {
  StoredTensor codes;  // rows of cols * bits / 8 bytes; of two codes in a byte the low one first
  int bits = 8;        // 4 or 8
  const CodeValues* values = nullptr;
  StoredTensor scales;  // [slabs, grid_rows, grid_cols]
  // Codes, as `scales`, or in words of several rows' [grid_rows * bits / 32, grid_cols].
  std::optional<StoredTensor> zeros;
  std::int64_t rows = 0, cols = 0;
  std::int64_t slab_rows = 0;  // rows of each matrix: of the third dimension there are several
  std::int64_t grid_rows = 1, grid_cols = 1;
  std::int64_t block_rows = 1, block_cols = 1;
  float factor = 1;
  bool divides = false;
};

// Finds the scales of `codes`, whose name is `stem` but for "_packed", and marks them in `stored`.
// InvalidArgument: scales are missing, or they or zero points of another shape; Unimplemented:
// columns in an order of their own, or an unknown type. Sources: transformers' finegrained_fp8;
// compressed-tensors; ModelOpt.
Result<PackedRows> FindPackedRows(const StoredTensor& codes, const std::string& stem,
                                  const Json& quantization, StoredSet& stored);

// The rows of `packed`, read from the files of `model`, which must outlive it.
FloatSource RowsOf(const ModelFile& model, PackedRows packed);

}  // namespace thermocline::model
