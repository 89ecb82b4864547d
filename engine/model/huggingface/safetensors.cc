//   safetensors := header_bytes:u64 header:JSON data     header := { name: {dtype, shape,
//   data_offsets} }
#include "engine/model/huggingface/safetensors.h"

#include "engine/base/json_limits.h"

namespace thermocline::model {
namespace {

constexpr std::uint64_t kHeaderBytesMax = std::uint64_t{100} << 20;  // safetensors' own limit
constexpr std::size_t kHeaderValuesMax = 1 << 20;                    // some eight for each tensor

Result<StoredTensor> TensorOf(const std::string& name, const Json& entry) {
  const Json *type = entry.Find("dtype"), *shape = entry.Find("shape"),
             *offsets = entry.Find("data_offsets");
  const auto damaged = [&] {
    return base::DataLoss("tensor '", name, "' lacks dtype, shape or data_offsets");
  };
  if (type == nullptr || !type->is_string() || shape == nullptr || !shape->is_array() ||
      offsets == nullptr || !offsets->is_array() || offsets->as_array().size() != 2 ||
      !offsets->as_array()[0].is_int() || !offsets->as_array()[1].is_int())
    return damaged();
  StoredTensor tensor{.name = name, .type = type->as_string(), .dims = {}};
  for (const Json& dim : shape->as_array()) {
    if (!dim.is_int()) return damaged();
    tensor.dims.push_back(dim.as_int());
  }
  tensor.begin = offsets->as_array()[0].as_int();
  tensor.end = offsets->as_array()[1].as_int();
  return tensor;
}

}  // namespace

Status CheckInside(const StoredTensor& tensor, std::uint64_t bytes, const base::File& file) {
  const std::uint64_t data_bytes = file.size() - tensor.data_begin;
  if (tensor.begin >= 0 && tensor.end >= tensor.begin &&
      static_cast<std::uint64_t>(tensor.end) <= data_bytes &&
      static_cast<std::uint64_t>(tensor.end - tensor.begin) == bytes)
    return OkStatus();
  return base::DataLoss("tensor '", tensor.name, "': data_offsets [", tensor.begin, ",", tensor.end,
                        "] do not match ", bytes, " bytes inside the file's ", data_bytes,
                        "; the download may be incomplete");
}

Result<std::vector<StoredTensor>> ReadSafetensors(const base::File& file, int index) {
  std::uint64_t header_bytes = 0;
  if (file.size() < 8)
    return base::DataLoss(file.path(), ": ", file.size(), " bytes are no safetensors file");
  RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  if (header_bytes > kHeaderBytesMax || header_bytes > file.size() - 8)
    return base::DataLoss(file.path(), ": the header claims ", header_bytes,
                          " bytes of the file's ", file.size());
  std::string header(header_bytes, '\0');
  RETURN_IF_ERROR(file.ReadAt(8, std::as_writable_bytes(std::span(header))));
  const auto parsed = base::ParseJsonOf(header, kHeaderValuesMax);
  if (!parsed.ok() || !parsed->is_object())
    return base::DataLoss(file.path(), ": the header is no JSON object");
  std::vector<StoredTensor> out;
  for (const auto& [name, entry] : parsed->as_object()) {
    if (name == "__metadata__") continue;
    auto tensor = TensorOf(name, entry);
    if (!tensor.ok()) return tensor.status().Annotate(file.path());
    tensor->file = index;
    tensor->data_begin = 8 + header_bytes;
    out.push_back(*std::move(tensor));
  }
  return out;
}

}  // namespace thermocline::model
