#include <algorithm>

#include "engine/model/huggingface/fields.h"
#include "engine/model/huggingface/packed_rows.h"

namespace thermocline::model {
namespace {

// The bits of codes packed in words: "X_shape" holds the rows and columns.
Result<int> BitsOf(const std::string& stem, const StoredTensor& codes, StoredSet& stored) {
  const StoredTensor* shape = stored.Use(stem + "_shape");
  if (shape == nullptr || shape->dims != std::vector<std::int64_t>{2} || codes.dims.size() != 2 ||
      (shape->type != "I64" && shape->type != "I32"))
    return base::InvalidArgument("'", stem, "_shape' with two numbers is missing");
  const bool wide = shape->type == "I64";
  RETURN_IF_ERROR(stored.ShapeOf(*shape, wide ? 8 : 4).status());
  std::array<std::int32_t, 4> words{};  // little endian
  RETURN_IF_ERROR(
      stored.Read(*shape, std::as_writable_bytes(std::span(words)).first(wide ? 16 : 8)));
  const std::int64_t rows = words[0], cols = words[wide ? 2 : 1];
  for (const int bits : {4, 8})
    if (rows == codes.dims[0] && cols > 0 && codes.dims[1] * 32 == cols * bits) return bits;
  return base::Unimplemented("[", codes.dims[0], ", ", codes.dims[1], "] words for [", rows, ", ",
                             cols, "] weights; 4 and 8 bits are read");
}

// The bits and values of the codes.
Status SetCodes(const std::string& stem, StoredSet& stored, PackedRows& weight) {
  const std::string& type = weight.codes.type;
  if (type == "F8_E4M3") {
    weight.values = &Fp8Values();
  } else if (type == "I8") {
    weight.values = &Int8Values();
  } else if (type == "U8") {
    weight.bits = 4;
    weight.values = &Fp4Values();
  } else if (type == "I32") {
    ASSIGN_OR_RETURN(weight.bits, BitsOf(stem, weight.codes, stored));
    weight.values = &OffsetValues(weight.bits);
  } else {
    return base::Unimplemented("packed in type ", type);
  }
  if (stored.Has(stem + "_g_idx"))
    return base::Unimplemented("'", stem, "_g_idx' beside it is not read");
  return OkStatus();
}

// The block of a scale: of the configuration where it gives one and the grid agrees, for the last
// block may be cut; else what the grid divides the matrix into.
Status SetBlocks(const Json& quantization, bool configured, bool same_slabs, PackedRows& weight) {
  const std::int64_t rows = weight.slab_rows, cols = weight.cols, grid_rows = weight.grid_rows;
  ASSIGN_OR_RETURN(const Json::Array size, hf::List(quantization, {"weight_block_size"}));
  const auto is_length = [](const Json& each) {
    return each.is_int() && each.as_int() > 0 && each.as_int() <= (1 << 24);
  };
  if (configured && !size.empty()) {
    if (size.size() != 2 || !is_length(size[0]) || !is_length(size[1]))
      return base::InvalidArgument("field 'weight_block_size' is ", Json(size).Dump());
    weight.block_rows = size[0].as_int();
    weight.block_cols = size[1].as_int();
  } else {
    weight.block_rows = (rows + grid_rows - 1) / std::max<std::int64_t>(grid_rows, 1);
    weight.block_cols = (cols + weight.grid_cols - 1) / weight.grid_cols;
  }
  const auto parts = [](std::int64_t all, std::int64_t block) { return (all + block - 1) / block; };
  if (same_slabs && grid_rows > 0 && parts(rows, weight.block_rows) == grid_rows &&
      parts(cols, weight.block_cols) == weight.grid_cols)
    return OkStatus();
  return base::InvalidArgument("[", rows, ", ", cols, "] has scales [", grid_rows, ", ",
                               weight.grid_cols, "], which are no blocks of it");
}

Status SetScales(const std::string& stem, const Json& quantization, std::int64_t slabs,
                 StoredSet& stored, PackedRows& weight) {
  const StoredTensor *blocks = stored.Use(stem + "_scale_inv"),
                     *plain = stored.Use(stem + "_scale");
  const StoredTensor* scales = blocks != nullptr ? blocks : plain;
  if (scales == nullptr) return base::InvalidArgument("'", stem, "_scale' is missing");
  weight.scales = *scales;
  const int size = ScaleBytes(scales->type);
  if (size == 0) return base::Unimplemented("scales of type ", scales->type);
  ASSIGN_OR_RETURN(auto grid, stored.ShapeOf(*scales, size));
  // A list is of one scale for each row.
  if (scales->dims.size() == 1) std::swap(grid[1], grid[2]);
  if (slabs > 1 && grid[0] == 1) grid = {slabs, grid[1] / slabs, grid[2]};
  weight.grid_rows = grid[1];
  weight.grid_cols = grid[2];
  RETURN_IF_ERROR(SetBlocks(quantization, blocks != nullptr, grid[0] == slabs, weight));
  if (const StoredTensor* factor = stored.Use(stem + "_scale_2"); factor != nullptr) {
    ASSIGN_OR_RETURN(weight.factor, stored.NumberOf(*factor));
  } else if (factor = stored.Use(stem + "_global_scale"); factor != nullptr) {
    ASSIGN_OR_RETURN(weight.factor, stored.NumberOf(*factor));
    weight.divides = true;
  }
  return OkStatus();
}

// Zero points are of integers alone. Source: compressed-tensors' pack_quantized and
// naive_quantized.
Status SetZeros(const std::string& stem, std::int64_t slabs, StoredSet& stored,
                PackedRows& weight) {
  const StoredTensor* zeros = stored.Use(stem + "_zero_point");
  if (zeros == nullptr) return OkStatus();
  const bool words = weight.codes.type == "I32";
  if ((!words && weight.codes.type != "I8") || zeros->type != weight.codes.type)
    return base::Unimplemented("zero points of type ", zeros->type, " of codes of type ",
                               weight.codes.type);
  ASSIGN_OR_RETURN(auto grid, stored.ShapeOf(*zeros, words ? 4 : 1));
  if (zeros->dims.size() == 1) std::swap(grid[1], grid[2]);
  const std::int64_t per_word = words ? 32 / weight.bits : 1;
  if (slabs != 1 || grid[0] != 1 || grid[2] != weight.grid_cols ||
      grid[1] != (weight.grid_rows + per_word - 1) / per_word)
    return base::InvalidArgument("scales [", weight.grid_rows, ", ", weight.grid_cols,
                                 "] have zero points [", grid[1], ", ", grid[2], "]");
  weight.zeros = *zeros;
  return OkStatus();
}

}  // namespace

Result<PackedRows> FindPackedRows(const StoredTensor& codes, const std::string& stem,
                                  const Json& quantization, StoredSet& stored) {
  PackedRows weight;
  weight.codes = codes;
  RETURN_IF_ERROR(SetCodes(stem, stored, weight));
  const int unit = codes.type == "I32" ? 4 : 1;  // bytes
  ASSIGN_OR_RETURN(const auto shape, stored.ShapeOf(codes, unit));
  weight.rows = shape[0] * shape[1];
  weight.cols = shape[2] * unit * 8 / weight.bits;
  weight.slab_rows = shape[1];
  RETURN_IF_ERROR(SetScales(stem, quantization, shape[0], stored, weight));
  RETURN_IF_ERROR(SetZeros(stem, shape[0], stored, weight));
  return weight;
}

}  // namespace thermocline::model
