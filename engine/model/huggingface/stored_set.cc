#include "engine/model/huggingface/stored_set.h"

#include <algorithm>

#include "engine/model/code_values.h"

namespace thermocline::model {

constexpr std::int64_t kDimMax = 1 << 24;

const StoredTensor* StoredSet::Use(const std::string& name) {
  const auto found = stored_.find(name);
  if (found == stored_.end()) return nullptr;
  used_.insert(name);
  return found->second;
}

Result<std::array<std::int64_t, 3>> StoredSet::ShapeOf(const StoredTensor& tensor,
                                                       int element_bytes) const {
  std::array<std::int64_t, 3> shape{1, 1, 1};
  if (tensor.dims.size() > 3) return base::InvalidArgument(tensor.dims.size(), " dimensions");
  std::copy(tensor.dims.begin(), tensor.dims.end(), shape.end() - tensor.dims.size());
  std::uint64_t bytes = element_bytes;
  for (const std::int64_t dim : shape) {
    if (dim < 1 || dim > kDimMax || bytes > (std::uint64_t{1} << 44))
      return base::InvalidArgument("'", tensor.name, "' has the dimension ", dim);
    bytes *= dim;
  }
  RETURN_IF_ERROR(CheckInside(tensor, bytes, *model_.files[tensor.file]));
  return shape;
}

Result<float> StoredSet::NumberOf(const StoredTensor& tensor) const {
  std::array<std::byte, 4> bytes{};
  const int size = ScaleBytes(tensor.type);
  if (size == 0) return base::Unimplemented("'", tensor.name, "' of type ", tensor.type);
  ASSIGN_OR_RETURN(const auto shape, ShapeOf(tensor, size));
  float value = 0;
  const auto read = std::span(bytes).first(size);
  RETURN_IF_ERROR(Read(tensor, read));
  ToFloats(tensor.type, read, {&value, 1});
  if (shape != std::array<std::int64_t, 3>{1, 1, 1} || !(value > 0))
    return base::InvalidArgument("'", tensor.name, "' is no number above 0");
  return value;
}

Status StoredSet::Read(const StoredTensor& tensor, std::span<std::byte> out) const {
  return model_.files[tensor.file]->ReadAt(tensor.offset(), out);
}

}  // namespace thermocline::model
