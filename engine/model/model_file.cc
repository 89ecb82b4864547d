#include "engine/model/model_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace thermocline::model {
namespace {

using kernels::DType;

// Types without kernels. Source: the ggml type table.
constexpr std::array kOtherTypes = {
    FileType{9, "q8_1", 32, 36, {}},
    FileType{15, "q8_k", 256, 292, {}},
    FileType{16, "iq2_xxs", 256, 66, {}},
    FileType{17, "iq2_xs", 256, 74, {}},
    FileType{18, "iq3_xxs", 256, 98, {}},
    FileType{19, "iq1_s", 256, 50, {}},
    FileType{21, "iq3_s", 256, 110, {}},
    FileType{22, "iq2_s", 256, 82, {}},
    FileType{24, "i8", 1, 1, {}},
    FileType{25, "i16", 1, 2, {}},
    FileType{26, "i32", 1, 4, {}},
    FileType{27, "i64", 1, 8, {}},
    FileType{28, "f64", 1, 8, {}},
    FileType{29, "iq1_m", 256, 56, {}},
    FileType{34, "tq1_0", 256, 54, {}},
    FileType{40, "nvfp4", 64, 36, {}},  // a factor is a tensor of its own (held_nvfp4.cc)
    FileType{36, "i2_s", 128, 32, {}},  // a scale follows the tensor (held_types.cc)
};

// The types without kernels, followed by those with kernels.
constexpr auto kFileTypes = [] {
  std::array<FileType, kOtherTypes.size() + kernels::kNumDTypes> types = {};
  auto* end = std::copy(kOtherTypes.begin(), kOtherTypes.end(), types.begin());
  for (const kernels::DTypeTraits& t : kernels::kDTypeTraits)
    *end++ = {t.gguf_type, t.name, t.block_size, t.block_bytes, t.type};
  return types;
}();

}  // namespace

const FileType* FindFileType(int ggml_id) {
  const auto found = std::find_if(kFileTypes.begin(), kFileTypes.end(),
                                  [&](const FileType& t) { return t.ggml_id == ggml_id; });
  return found == kFileTypes.end() ? nullptr : &*found;
}

const FileType& FileTypeOf(kernels::DType dtype) {
  const auto found = std::find_if(kFileTypes.begin(), kFileTypes.end(),
                                  [&](const FileType& t) { return t.dtype == dtype; });
  CHECK(found != kFileTypes.end());
  return *found;
}

const TensorInfo* ModelFile::Find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const TensorInfo& t) { return t.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

void ModelFile::AddVector(std::string name, std::vector<float> data) {
  const std::int64_t n = data.size();
  AddMatrix(std::move(name), 1, n, [data = std::move(data)](std::int64_t, std::span<float> out) {
    std::copy(data.begin(), data.end(), out.begin());
    return OkStatus();
  });
  tensors.back().num_dims = 1;
}

void ModelFile::AddMatrix(std::string name, std::int64_t rows, std::int64_t cols,
                          FloatSource source) {
  TensorInfo tensor{.name = std::move(name), .type = FindFileType(0), .num_dims = 2};
  tensor.rows = rows;
  tensor.cols = cols;
  tensor.bytes = (rows * cols) * sizeof(float);
  tensor.source = std::make_shared<const RowSource>(
      [source = std::move(source), cols](std::int64_t row, std::span<std::byte> out) {
        std::vector<float> values(cols);
        Status status = source(row, values);
        std::memcpy(out.data(), values.data(), out.size());
        return status;
      });
  tensors.push_back(std::move(tensor));
}

void ModelFile::AddMatrices(std::string name, std::int64_t slabs, std::int64_t rows,
                            std::int64_t cols, FloatSource source) {
  AddMatrix(std::move(name), slabs * rows, cols, std::move(source));
  tensors.back().num_dims = 3;
  tensors.back().slabs = slabs;
}

std::int64_t HeadOrder::StoredRow(std::int64_t row) const {
  const std::int64_t head = row / head_dim, in_head = row % head_dim;
  const std::int64_t stored_head = head / per_group * stride + first + head % per_group;
  // Pair i of a head is rows (i, i + Dh/2) in Hugging Face's files, and rows (2i, 2i + 1) here.
  const std::int64_t stored = halves ? in_head / 2 + in_head % 2 * (head_dim / 2) : in_head;
  return stored_head * head_dim + stored;
}

Status ModelFile::ReadRows(const TensorInfo& tensor, std::int64_t first, std::int64_t count,
                           std::span<std::byte> out) const {
  if (tensor.source != nullptr) {
    const std::uint64_t bytes = tensor.row_bytes();
    for (std::int64_t i = 0; i < count; ++i)
      RETURN_IF_ERROR((*tensor.source)(first + i, out.subspan(i * bytes, bytes)));
    return OkStatus();
  }
  if (!tensor.pieces.empty()) return ReadPieces(tensor, first, count, out);
  const base::File& file = *files[tensor.file];
  const bool vector = tensor.num_dims == 1;
  const std::uint64_t unit =
      vector ? static_cast<std::uint64_t>(tensor.type->block_bytes) : tensor.row_bytes();
  const auto read = [&](std::int64_t unit_index, std::span<std::byte> to) {
    const Status status = file.ReadAt(tensor.offset + unit_index * unit, to);
    return status.ok() ? status : status.Annotate(StrCat("tensor ", tensor.name));
  };
  if (tensor.order.head_dim == 0) return read(first, out);
  if (vector) count = tensor.cols;
  // The rows of whole heads are close together, so one read suffices.
  std::int64_t least = tensor.order.StoredRow(first), most = least;
  for (std::int64_t i = 1; i < count; ++i) {
    const std::int64_t stored = tensor.order.StoredRow(first + i);
    least = std::min(least, stored);
    most = std::max(most, stored);
  }
  const std::int64_t span = most - least + 1;
  if (span <= 2 * count) {
    std::vector<std::byte> stored(span * unit);
    RETURN_IF_ERROR(read(least, stored));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::size_t at = i * unit, from = (tensor.order.StoredRow(first + i) - least) * unit;
      std::memcpy(out.data() + at, stored.data() + from, unit);
    }
    return OkStatus();
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t at = i * unit;
    RETURN_IF_ERROR(read(tensor.order.StoredRow(first + i), out.subspan(at, unit)));
  }
  return OkStatus();
}

// Reads runs of rows that are contiguous in one piece.
Status ModelFile::ReadPieces(const TensorInfo& tensor, std::int64_t first, std::int64_t count,
                             std::span<std::byte> out) const {
  const std::int64_t rows = tensor.rows / base::IntSize(tensor.pieces);
  const std::uint64_t row_bytes = tensor.row_bytes();
  for (std::int64_t row = first; row < first + count;) {
    const TensorPiece& piece = tensor.pieces[row / rows];
    const std::int64_t in_piece = row % rows, run = std::min(rows - in_piece, first + count - row);
    const Status status =
        files[piece.file]->ReadAt(piece.offset + in_piece * row_bytes,
                                  out.subspan((row - first) * row_bytes, run * row_bytes));
    if (!status.ok()) return status.Annotate(StrCat("tensor ", tensor.name));
    row += run;
  }
  return OkStatus();
}

const FileType* ModelFile::TypeWithoutDeviceKernels() const {
  for (const TensorInfo& tensor : tensors) {
    const auto& type = tensor.type->dtype;
    if (tensor.num_dims >= 2 && type.has_value() && !kernels::HasDeviceKernels(*type))
      return tensor.type;
  }
  return nullptr;
}

std::uint64_t ModelFile::bytes() const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < files.size(); ++i)
    if (std::cmp_not_equal(i, decoded_file)) sum += files[i]->size();
  return sum;
}

std::string ModelFile::ReadDirectly() {
  std::string why;
  for (const auto& file : files) {
    const std::string refused = file->ReadDirectly();
    if (why.empty() && !refused.empty()) why = StrCat(file->path(), ": ", refused);
  }
  return why;
}

}  // namespace thermocline::model
