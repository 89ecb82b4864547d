// LoRA adapters: a matrix W of a model becomes W + scale B A, with A [r, cols] and B [rows, r].
// Source: Hu et al. 2021; the files of llama.cpp and of PEFT.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/status.h"

namespace thermocline::model {

// The change of one matrix.
struct AdapterPart {
  int rank = 0, rows = 0, cols = 0;
  float scale = 1;       // alpha / r, or as the file says
  std::vector<float> a;  // [rank, cols]
  std::vector<float> b;  // [rows, rank], in the order of GGUF's rows
};

struct Adapter {
  std::string path;
  std::map<std::string, AdapterPart> parts;  // by the matrix's name: "blk.0.attn_q.weight"
  std::string hash;                          // of all numbers
};

// One of the two factors as its file holds it.
struct AdapterFactor {
  std::string matrix;  // "blk.0.attn_q.weight"
  bool first = true;   // A, else B
  std::int64_t rows = 0, cols = 0;
  std::vector<float> data;  // [rows, cols]
};
// Adds a factor. DataLoss: it is there twice, or too large.
Status AddFactor(AdapterFactor factor, Adapter& adapter);

}  // namespace thermocline::model
