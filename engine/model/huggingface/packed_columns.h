// Packed weights of GPTQ and AWQ folders: words of several codes, input by input, with a scale and
// a zero point for each output of a group of inputs.
#pragma once

#include <functional>
#include <optional>

#include "engine/model/huggingface/stored_set.h"

namespace thermocline::model {

// A matrix [outputs, inputs]: element = (code - zero point) * scale of the input's group.
struct PackedColumns {
  StoredTensor codes;   // I32; GPTQ: [inputs / codes per word, outputs], AWQ: the other way round
  StoredTensor zeros;   // I32 [groups, outputs / codes per word]
  StoredTensor scales;  // F16 or BF16 [groups, outputs]
  std::optional<StoredTensor> groups;  // I32 [inputs]: each input's; else they are of equal size
  std::int64_t inputs = 0, outputs = 0, num_groups = 0;
  int bits = 4;       // 4 or 8
  bool awq = false;   // words hold outputs, in the order 0 2 4 6 1 3 5 7
  int zero_plus = 0;  // GPTQ's first format stores zero points less one
};

// Finds what belongs to `codes`, "X.qweight", and marks it in `stored`. InvalidArgument: a tensor
// is missing or of another shape; Unimplemented: other bits than 4 and 8, or another layout.
Result<PackedColumns> FindPackedColumns(const StoredTensor& codes, const Json& quantization,
                                        StoredSet& stored);

// Makes the rows of a matrix. Its rows are read by several threads; DataLoss: an input of a group
// that does not exist; other errors as base::File::ReadAt.
using ColumnsReader = std::function<FloatSource(PackedColumns packed)>;
// A row has codes of all of a matrix's words, so the matrices that were read last are kept, for all
// rows of one reader. `model`: must outlive them.
ColumnsReader ReaderOfColumns(const ModelFile& model);

}  // namespace thermocline::model
