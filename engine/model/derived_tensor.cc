#include "engine/model/derived_tensor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/base/bytes.h"
#include "engine/base/mutex.h"
#include "kernels/quantize.h"

namespace thermocline::model {
namespace {

constexpr int kF32 = 0, kMxfp4 = 39;  // GGUF's numbers
constexpr int kMxfpBlock = 32, kMxfpBytes = 16;

std::int64_t StoredRow(const HeadOrder& order, std::int64_t row) {
  return order.head_dim == 0 ? row : order.StoredRow(row);
}

// Caches transposed matrices, one for each thread that may read. Thread-safe.
class TurnedRows {
 public:
  TurnedRows(const ModelFile& model, Turn turn, const FileType& type)
      : model_(model), turn_(std::move(turn)), element_(type.block_bytes) {}

  Status Row(std::int64_t row, std::span<std::byte> out) {
    const std::int64_t turned = StoredRow(turn_.order, row), per_matrix = turn_.stored.cols;
    const base::MutexLock lock(mutex_);
    ASSIGN_OR_RETURN(const std::vector<std::byte>* matrix, Matrix(turned / per_matrix));
    std::copy_n(matrix->data() + (turned % per_matrix) * out.size(), out.size(), out.begin());
    return OkStatus();
  }

 private:
  struct Kept {
    std::int64_t index = -1;
    std::vector<std::byte> rows;  // [stored.cols, turn.cols]
  };
  static constexpr std::size_t kKept = 8;

  Result<const std::vector<std::byte>*> Matrix(std::int64_t index) REQUIRES(mutex_) {
    for (const Kept& kept : kept_)
      if (kept.index == index) return &kept.rows;
    if (kept_.size() < kKept) kept_.emplace_back();
    Kept& kept = kept_[next_++ % kKept];
    kept.index = -1;
    RETURN_IF_ERROR(Read(index, kept.rows));
    kept.index = index;
    return &kept.rows;
  }

  Status Read(std::int64_t index, std::vector<std::byte>& out) {
    const TensorInfo& stored = turn_.stored;
    const std::size_t count = turn_.cols, cols = stored.cols;
    std::vector<std::byte> rows(stored.row_bytes() * count);
    RETURN_IF_ERROR(model_.ReadRows(
        stored, index * (stored.rows / turn_.matrices) + turn_.first_row, turn_.cols, rows));
    out.resize(count * cols * element_);
    std::vector<float> floats(cols);
    for (std::size_t r = 0; r < count; ++r) {
      const std::byte* row = rows.data() + r * stored.row_bytes();
      if (stored.type->block_size > 1) {
        kernels::DequantizeRow(*stored.type->dtype, base::Octets(row), static_cast<int>(cols),
                               floats.data());
        row = reinterpret_cast<const std::byte*>(floats.data());
      }
      for (std::size_t c = 0; c < cols; ++c)
        std::memcpy(&out[(c * count + r) * element_], row + c * element_, element_);
    }
    return OkStatus();
  }

  const ModelFile& model_;
  const Turn turn_;
  const std::size_t element_;  // bytes
  base::Mutex mutex_;
  std::vector<Kept> kept_ GUARDED_BY(mutex_);
  std::size_t next_ GUARDED_BY(mutex_) = 0;
};

// Reorders the 32 four-bit elements of a block. Byte i of `in` holds element 2i in its low half and
// element 2i + 1 in its high half; byte i of `out` holds elements i and 16 + i.
void Repack(const std::uint8_t* in, std::uint8_t* out) {
  const auto element = [&](int i) { return in[i / 2] >> (i % 2 * 4) & 15; };
  for (int i = 0; i < kMxfpBytes; ++i)
    out[i] = static_cast<std::uint8_t>(element(i) | element(kMxfpBytes + i) << 4);
}

Status MxfpRow(const ModelFile& model, const MxfpParts& p, std::int64_t row,
               std::span<std::byte> out) {
  const std::int64_t stored = StoredRow(p.order, row), blocks = p.cols / kMxfpBlock;
  std::vector<std::uint8_t> nibbles(blocks * kMxfpBytes), scales(blocks);
  RETURN_IF_ERROR(model.files[p.file]->ReadAt(p.blocks + stored * nibbles.size(),
                                              std::as_writable_bytes(std::span(nibbles))));
  RETURN_IF_ERROR(model.files[p.scales_file]->ReadAt(p.scales + stored * scales.size(),
                                                     std::as_writable_bytes(std::span(scales))));
  auto* to = base::Octets(out.data());
  for (std::int64_t b = 0; b < blocks; ++b, to += 1 + kMxfpBytes) {
    to[0] = scales[b];
    Repack(&nibbles[b * kMxfpBytes], to + 1);
  }
  return OkStatus();
}

Status TooSmall(const TensorInfo& stored, const char* what, std::int64_t size, std::int64_t at) {
  return base::InvalidArgument("tensor '", stored.name, "' has ", size, " ", what,
                               ", too few for number ", at, " of the order it is read in");
}

}  // namespace

TensorInfo TurnedTensor(const ModelFile& model, const Turn& turn) {
  const bool alone = turn.stored.type->block_size == 1;
  TensorInfo out{.name = turn.name, .type = alone ? turn.stored.type : FindFileType(kF32)};
  out.slabs = turn.matrices;
  out.num_dims = turn.matrices > 1 ? 3 : 2;
  out.rows = turn.matrices * turn.rows;
  out.cols = turn.cols;
  out.bytes = out.rows * out.cols * out.type->block_bytes;
  const auto rows = std::make_shared<TurnedRows>(model, turn, *out.type);
  out.source = std::make_shared<const RowSource>(
      [rows](std::int64_t row, std::span<std::byte> to) { return rows->Row(row, to); });
  return out;
}

TensorInfo PickedTensor(const ModelFile& model, const Pick& pick) {
  return ReorderedColumns(
      model, pick.stored, pick.name, pick.cols,
      [first = pick.first, step = pick.step](std::int64_t i) { return first + i * step; });
}

TensorInfo ReorderedRows(const ModelFile& model, const TensorInfo& stored, std::string name,
                         std::int64_t rows, StoredIndex from) {
  TensorInfo out = stored;
  out.name = std::move(name);
  out.rows = rows;
  out.bytes = stored.row_bytes() * rows;
  out.source = std::make_shared<const RowSource>(
      [&model, stored, from = std::move(from)](std::int64_t row, std::span<std::byte> to) {
        const std::int64_t at = from(row);
        return at < stored.rows ? model.ReadRows(stored, at, 1, to)
                                : TooSmall(stored, "rows", stored.rows, at);
      });
  return out;
}

TensorInfo ReorderedColumns(const ModelFile& model, const TensorInfo& stored, std::string name,
                            std::int64_t cols, StoredIndex from) {
  TensorInfo out = stored;
  out.name = std::move(name);
  out.cols = cols;
  out.bytes = out.rows * out.cols * out.type->block_bytes;
  out.source =
      std::make_shared<const RowSource>([&model, stored, cols, from = std::move(from)](
                                            std::int64_t row, std::span<std::byte> to) -> Status {
        const std::size_t element = stored.type->block_bytes;
        std::vector<std::byte> bytes(stored.row_bytes());
        RETURN_IF_ERROR(model.ReadRows(stored, row, 1, bytes));
        for (std::int64_t i = 0; i < cols; ++i) {
          const std::int64_t at = from(i);
          if (at >= stored.cols) return TooSmall(stored, "columns", stored.cols, at);
          std::memcpy(&to[i * element], &bytes[at * element], element);
        }
        return OkStatus();
      });
  return out;
}

TensorInfo MxfpTensor(const ModelFile& model, const MxfpParts& parts) {
  TensorInfo out{.name = parts.name, .type = FindFileType(kMxfp4)};
  out.slabs = parts.slabs;
  out.num_dims = parts.slabs > 1 ? 3 : 2;
  out.rows = parts.rows;
  out.cols = parts.cols;
  out.bytes = out.rows * (out.cols / kMxfpBlock) * out.type->block_bytes;
  out.source =
      std::make_shared<const RowSource>([&model, parts](std::int64_t row, std::span<std::byte> to) {
        return MxfpRow(model, parts, row, to);
      });
  return out;
}

}  // namespace thermocline::model
