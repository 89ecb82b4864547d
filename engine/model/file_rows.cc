#include "engine/model/file_rows.h"

#include <vector>

#include "engine/base/bytes.h"
#include "kernels/quantize.h"

namespace thermocline::model {

Result<std::unique_ptr<FileRows>> FileRows::Open(const ModelFile& model, const TensorInfo& tensor) {
  const bool plain =
      tensor.source == nullptr && tensor.pieces.empty() && tensor.order.head_dim == 0;
  if (!plain || !tensor.type->dtype.has_value())
    return base::Unimplemented(model.path, ": tensor '", tensor.name,
                               "' is of a type that is converted while it is read, and this table "
                               "is read by row; `thermocline convert` makes a file where it is ",
                               tensor.type->name);
  auto rows = std::unique_ptr<FileRows>(new FileRows(tensor));
  ASSIGN_OR_RETURN(rows->file_, base::OpenFile(model.files[tensor.file]->path()));
  return rows;
}

Status FileRows::Verify() const {
  std::vector<std::byte> bytes(tensor_.row_bytes());
  for (std::int64_t row = 0; row < tensor_.rows; ++row) {
    RETURN_IF_ERROR(file_->ReadAt(tensor_.offset + row * tensor_.row_bytes(), bytes));
    const int bad = kernels::FindNonFiniteBlock(*tensor_.type->dtype, base::Octets(bytes.data()),
                                                tensor_.columns());
    if (bad >= 0)
      return base::DataLoss(file_->path(), ": tensor '", tensor_.name, "', row ", row, ": block ",
                            bad, " is not finite");
  }
  return OkStatus();
}

Status FileRows::Read(std::int64_t row, std::span<float> out) const {
  CHECK(row >= 0 && row < tensor_.rows);
  thread_local std::vector<std::byte> bytes;
  bytes.resize(tensor_.row_bytes());
  const Status read = file_->ReadAt(tensor_.offset + row * tensor_.row_bytes(), bytes);
  if (!read.ok()) return read.Annotate(StrCat("tensor ", tensor_.name));
  kernels::DequantizeRow(*tensor_.type->dtype, base::Octets(bytes.data()), tensor_.columns(),
                         out.data());
  return OkStatus();
}

}  // namespace thermocline::model
