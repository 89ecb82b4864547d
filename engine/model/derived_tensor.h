// Tensors that no file holds as they are read: matrices turned, elements picked, blocks in another
// order. Each borrows `model`, which must outlive it.
#pragma once

#include "engine/model/model_file.h"

namespace thermocline::model {

// Matrices [rows, cols] made of the columns of stored ones.
struct Turn {
  std::string name;
  TensorInfo stored;  // `matrices` of them, one below the other
  std::int64_t matrices = 1;
  std::int64_t first_row = 0;  // of each stored one: those that become columns
  std::int64_t cols = 0;
  HeadOrder order = {};   // of the turned rows
  std::int64_t rows = 0;  // of each that are taken
};
// The turned tensor: of the stored type where its elements stand alone, else f32. Requires: a type
// that can be read.
TensorInfo TurnedTensor(const ModelFile& model, const Turn& turn);

// Elements first, first + step, ... of each row of `stored`, cols of them. Requires: a type whose
// elements stand alone.
struct Pick {
  std::string name;
  TensorInfo stored;
  std::int64_t first = 0, step = 1, cols = 0;
};
TensorInfo PickedTensor(const ModelFile& model, const Pick& pick);

// MXFP4 as Hugging Face stores it, nibbles in the order of their elements and scales apart.
// `blocks` [rows, cols / 2] and `scales` [rows, cols / 32] are bytes. Source: the OCP MX format;
// gpt-oss.
struct MxfpParts {
  std::string name;
  int file = 0;
  std::uint64_t blocks = 0, scales = 0;  // offsets in the file
  int scales_file = 0;
  std::int64_t slabs = 1, rows = 0, cols = 0;  // rows: of all slabs, as taken
  HeadOrder order = {};                        // of rows
};
TensorInfo MxfpTensor(const ModelFile& model, const MxfpParts& parts);

}  // namespace thermocline::model
