// Tensors that are derived from stored ones: transposed matrices, selected elements, reordered
// blocks. Each borrows `model`, which must outlive it.
#pragma once

#include <functional>

#include "engine/model/model_file.h"

namespace thermocline::model {

// Matrices [rows, cols] made of the columns of stored ones.
struct Turn {
  std::string name;
  TensorInfo stored;  // `matrices` of them, stored one after the other
  std::int64_t matrices = 1;
  std::int64_t first_row = 0;  // of each stored one: the rows that become columns
  std::int64_t cols = 0;
  HeadOrder order = {};   // of the turned rows
  std::int64_t rows = 0;  // rows taken of each
};
// Returns the transposed tensor: in the stored type if its elements can be read one by one, else
// f32. Requires: a type that can be read.
TensorInfo TurnedTensor(const ModelFile& model, const Turn& turn);

// Elements first, first + step, ... of each row of `stored`, cols in all. Requires: a type whose
// elements can be read one by one.
struct Pick {
  std::string name;
  TensorInfo stored;
  std::int64_t first = 0, step = 1, cols = 0;
};
TensorInfo PickedTensor(const ModelFile& model, const Pick& pick);

// The stored row, or element of a row, that is row or element `i` of a reordered tensor.
using StoredIndex = std::function<std::int64_t(std::int64_t i)>;
// `rows` rows of `stored`. Reading fails with InvalidArgument where `stored` has no such row.
TensorInfo ReorderedRows(const ModelFile& model, const TensorInfo& stored, std::string name,
                         std::int64_t rows, StoredIndex from);
// `cols` elements of each row of `stored`. Requires: a type whose elements can be read one by one.
// Reading fails with InvalidArgument where `stored` has no such element.
TensorInfo ReorderedColumns(const ModelFile& model, const TensorInfo& stored, std::string name,
                            std::int64_t cols, StoredIndex from);

// MXFP4 as Hugging Face stores it, nibbles in the order of their elements and scales apart.
// `blocks` [rows, cols / 2] and `scales` [rows, cols / 32] are bytes. Source: the OCP MX format;
// gpt-oss.
struct MxfpParts {
  std::string name;
  int file = 0;
  std::uint64_t blocks = 0, scales = 0;  // offsets in the file
  int scales_file = 0;
  std::int64_t slabs = 1, rows = 0, cols = 0;  // rows: taken rows of all slabs
  HeadOrder order = {};                        // of rows
};
TensorInfo MxfpTensor(const ModelFile& model, const MxfpParts& parts);

}  // namespace thermocline::model
