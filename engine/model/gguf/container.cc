// Parses GGUF v2 and v3, and PowerInfer's files, which differ in the magic (powerinfer.h).
//
//   file     := ("GGUF" | "PWRI") version:u32 n_tensors:u64 n_kv:u64 kv* tensor_info* padding data
//   kv       := key:string type:u32 value           string := length:u64 bytes
//   value    := number | bool:u8 | string | array   array  := type:u32 count:u64 value*
//   tensor   := name:string n_dims:u32 dim:u64* type:u32 offset:u64   (offset from `data`, aligned)
// Every count and length is checked against the remaining bytes before it determines a size.
// Source: ggml's GGUF specification.
#include "engine/model/gguf/container.h"

#include <algorithm>
#include <bit>
#include <unordered_set>

#include "engine/model/byte_reader.h"

namespace thermocline::model {
namespace {

enum ValueType : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

// All metadata of a file is held in memory: a file of some bytes with holes could ask for any
// amount. Vocabularies have some 2^18 tokens of 8 bytes, with a type and a score, and 2^19 merges.
constexpr std::uint64_t kArrayElementsMax = std::uint64_t{1} << 21, kTextBytesMax = 64 << 20;
// Files have some 50 keys, and at most three matrices for each expert of each layer.
constexpr std::uint64_t kKeysMax = 1 << 16, kTensorsMax = 1 << 17;

// The metadata that was read so far.
struct MetadataSize {
  std::uint64_t elements = 0, text = 0;
};

// The minimum bytes of one element, to bound array counts.
std::uint64_t BytesMin(std::uint32_t type) {
  switch (type) {
    case kUint8:
    case kInt8:
    case kBool:
      return 1;
    case kUint16:
    case kInt16:
      return 2;
    case kUint32:
    case kInt32:
    case kFloat32:
      return 4;
    default:
      return 8;
  }
}

template <typename T>
Result<Json> ReadNumber(ByteReader& in, std::string_view key) {
  ASSIGN_OR_RETURN(const T value, in.Read<T>(key));
  if constexpr (std::is_same_v<T, std::uint64_t>) {
    if (value > static_cast<std::uint64_t>(INT64_MAX)) return Json(static_cast<double>(value));
  }
  if constexpr (std::is_floating_point_v<T>) {
    return Json(static_cast<double>(value));
  } else {
    return Json(static_cast<std::int64_t>(value));
  }
}

Result<std::string> ReadText(ByteReader& in, std::string_view what, MetadataSize& size) {
  ASSIGN_OR_RETURN(const auto length, in.Read<std::uint64_t>(what));
  if (length > kTextBytesMax - size.text)
    return base::DataLoss(what, ": a text of ", length,
                          " bytes; all texts of a file together have at most ", kTextBytesMax);
  size.text += length;
  return in.ReadString(what, length);
}

Result<Json> ReadValue(ByteReader& in, std::string_view key, std::uint32_t type,
                       MetadataSize& size);

Result<Json> ReadArray(ByteReader& in, std::string_view key, MetadataSize& size) {
  ASSIGN_OR_RETURN(const auto type, in.Read<std::uint32_t>(key));
  ASSIGN_OR_RETURN(const auto count, in.Read<std::uint64_t>(key));
  if (type == kArray)
    return base::Unimplemented("key '", key, "': arrays of arrays are not supported");
  if (count > in.remaining() / BytesMin(type)) {
    return base::DataLoss("key '", key, "': an array of ", count, " elements does not fit the ",
                          in.remaining(), " bytes left; the download may be incomplete");
  }
  if (count > kArrayElementsMax - size.elements) {
    return base::DataLoss("key '", key, "': an array of ", count,
                          " elements; all arrays of a file together have at most ",
                          kArrayElementsMax);
  }
  size.elements += count;
  Json::Array values;
  values.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(Json value, ReadValue(in, key, type, size));
    values.push_back(std::move(value));
  }
  return Json(std::move(values));
}

Result<Json> ReadValue(ByteReader& in, std::string_view key, std::uint32_t type,
                       MetadataSize& size) {
  switch (type) {
    case kUint8:
      return ReadNumber<std::uint8_t>(in, key);
    case kInt8:
      return ReadNumber<std::int8_t>(in, key);
    case kUint16:
      return ReadNumber<std::uint16_t>(in, key);
    case kInt16:
      return ReadNumber<std::int16_t>(in, key);
    case kUint32:
      return ReadNumber<std::uint32_t>(in, key);
    case kInt32:
      return ReadNumber<std::int32_t>(in, key);
    case kUint64:
      return ReadNumber<std::uint64_t>(in, key);
    case kInt64:
      return ReadNumber<std::int64_t>(in, key);
    case kFloat32:
      return ReadNumber<float>(in, key);
    case kFloat64:
      return ReadNumber<double>(in, key);
    case kBool: {
      ASSIGN_OR_RETURN(const auto value, in.Read<std::uint8_t>(key));
      return Json(value != 0);
    }
    case kString: {
      ASSIGN_OR_RETURN(std::string text, ReadText(in, key, size));
      return Json(std::move(text));
    }
    case kArray:
      return ReadArray(in, key, size);
    default:
      return base::DataLoss("key '", key, "' has the unknown value type ", type);
  }
}

Status CheckCount(const char* what, std::uint64_t count, std::uint64_t most) {
  if (count <= most) return OkStatus();
  return base::DataLoss(count, " ", what, "; a file has at most ", most);
}

Status ReadMetadata(ByteReader& in, std::uint64_t count, Json& metadata) {
  RETURN_IF_ERROR(CheckCount("metadata keys", count, kKeysMax));
  std::unordered_set<std::string> seen;
  MetadataSize size;
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(std::string key, ReadText(in, StrCat("metadata key ", i), size));
    if (!seen.insert(key).second) return base::DataLoss("key '", key, "' appears twice");
    ASSIGN_OR_RETURN(const auto type, in.Read<std::uint32_t>(key));
    ASSIGN_OR_RETURN(Json value, ReadValue(in, key, type, size));
    metadata.object().emplace_back(std::move(key), std::move(value));
  }
  return OkStatus();
}

// Reads the shape and size of one tensor; the product of its dimensions may not overflow.
Status ReadShape(ByteReader& in, TensorInfo& tensor) {
  ASSIGN_OR_RETURN(const auto num_dims, in.Read<std::uint32_t>(tensor.name));
  if (num_dims < 1 || num_dims > 4)
    return base::DataLoss("tensor '", tensor.name, "' has ", num_dims, " dimensions");
  tensor.num_dims = num_dims;
  for (std::uint32_t i = 0; i < num_dims; ++i) {
    ASSIGN_OR_RETURN(const auto dim, in.Read<std::uint64_t>(tensor.name));
    if (i == 2) tensor.slabs = dim;
    std::int64_t& product = i == 0 ? tensor.cols : tensor.rows;
    if (i == 0) product = 1;
    if (dim < 1 || dim > (std::uint64_t{1} << 40) ||
        __builtin_mul_overflow(product, static_cast<std::int64_t>(dim), &product)) {
      return base::DataLoss("tensor '", tensor.name, "' has an impossible dimension ", i, ": ",
                            dim);
    }
  }
  ASSIGN_OR_RETURN(const auto type, in.Read<std::uint32_t>(tensor.name));
  tensor.type = type < 1000 ? FindFileType(type) : nullptr;
  if (tensor.type == nullptr)
    return base::Unimplemented("tensor '", tensor.name, "' has the unknown type ", type);
  if (tensor.cols % tensor.type->block_size != 0) {
    return base::DataLoss("tensor '", tensor.name, "': rows of ", tensor.cols,
                          " elements are no multiple of ", tensor.type->name, "'s block of ",
                          tensor.type->block_size);
  }
  const std::int64_t row_bytes = tensor.cols / tensor.type->block_size * tensor.type->block_bytes;
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(row_bytes, tensor.rows, &bytes)) {
    return base::DataLoss("tensor '", tensor.name, "' has an impossible size");
  }
  tensor.bytes = bytes;
  return OkStatus();
}

Status ReadTensors(ByteReader& in, std::uint64_t count, std::vector<TensorInfo>& tensors) {
  RETURN_IF_ERROR(CheckCount("tensors", count, kTensorsMax));
  MetadataSize size;
  std::unordered_set<std::string> seen;
  for (std::uint64_t i = 0; i < count; ++i) {
    TensorInfo tensor;
    ASSIGN_OR_RETURN(tensor.name, ReadText(in, StrCat("name of tensor ", i), size));
    if (!seen.insert(tensor.name).second)
      return base::DataLoss("tensor '", tensor.name, "' appears twice");
    RETURN_IF_ERROR(ReadShape(in, tensor));
    ASSIGN_OR_RETURN(tensor.offset, in.Read<std::uint64_t>(tensor.name));
    tensors.push_back(std::move(tensor));
  }
  return OkStatus();
}

// Converts offsets in the data section to file offsets, and checks that every tensor is in the
// file.
Status PlaceTensors(std::uint64_t header_bytes, std::uint64_t file_bytes,
                    GgufContainer& container) {
  std::int64_t alignment = 32;
  if (const Json* value = container.metadata.Find("general.alignment")) {
    if (!value->is_int()) return base::DataLoss("key 'general.alignment' is no integer");
    alignment = value->as_int();
  }
  if (alignment < 8 || alignment > (1 << 20) ||
      !std::has_single_bit(static_cast<std::uint64_t>(alignment))) {
    return base::DataLoss("key 'general.alignment' is ", alignment,
                          "; it must be a power of two from 8 to 1048576");
  }
  const std::uint64_t align = alignment;
  const std::uint64_t data = (header_bytes + align - 1) / align * align;
  std::uint64_t bytes_left = file_bytes - std::min(data, file_bytes);
  for (TensorInfo& tensor : container.tensors) {
    if (tensor.offset % align != 0)
      return base::DataLoss("tensor '", tensor.name, "': offset ", tensor.offset,
                            " is not aligned to ", align);
    if (data > file_bytes || tensor.offset > file_bytes - data ||
        tensor.bytes > file_bytes - data - tensor.offset) {
      return base::DataLoss("tensor '", tensor.name, "' needs ", tensor.bytes, " bytes at offset ",
                            tensor.offset, " of the data, beyond the file's ", file_bytes,
                            " bytes; the download may be incomplete");
    }
    if (tensor.bytes > bytes_left)
      return base::DataLoss("tensor '", tensor.name,
                            "' overlaps another: together they need more "
                            "than the ",
                            file_bytes - data, " bytes of data");
    bytes_left -= tensor.bytes;
    tensor.offset += data;
  }
  return OkStatus();
}

Result<GgufContainer> Parse(ByteReader& in, std::uint64_t file_bytes, int index) {
  GgufContainer out;
  ASSIGN_OR_RETURN(const std::string magic, in.ReadString("magic", 4));
  out.powerinfer = magic == "PWRI";
  if (magic != "GGUF" && !out.powerinfer) return base::InvalidArgument("not a GGUF file");
  ASSIGN_OR_RETURN(out.version, in.Read<std::uint32_t>("version"));
  if (out.version != 2 && out.version != 3) {
    return base::Unimplemented("GGUF version ", out.version,
                               " is not supported; supported are 2 and 3");
  }
  ASSIGN_OR_RETURN(const auto num_tensors, in.Read<std::uint64_t>("tensor count"));
  ASSIGN_OR_RETURN(const auto num_keys, in.Read<std::uint64_t>("metadata count"));
  RETURN_IF_ERROR(ReadMetadata(in, num_keys, out.metadata));
  RETURN_IF_ERROR(ReadTensors(in, num_tensors, out.tensors));
  for (TensorInfo& tensor : out.tensors) tensor.file = index;
  RETURN_IF_ERROR(PlaceTensors(in.position(), file_bytes, out));
  return out;
}

}  // namespace

Result<GgufContainer> ReadGgufContainer(const base::File& file, int index) {
  ByteReader in(file);
  auto out = Parse(in, file.size(), index);
  RETURN_IF_ERROR(in.read_error());  // names the file
  if (!out.ok()) return out.status().Annotate(file.path());
  return out;
}

}  // namespace thermocline::model
