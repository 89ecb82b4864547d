#include <algorithm>

#include "engine/base/file.h"
#include "engine/base/hash.h"
#include "engine/base/header_fields.h"
#include "engine/base/json_limits.h"
#include "engine/store/bundle_format.h"
#include "engine/store/bundle_layout.h"

namespace thermocline::store {
namespace {

using base::ArrayArea;
using base::HeaderFields;
using Kind = BundleIndex::Kind;

constexpr const char* kPackAnew = "; make the model's bundle with `thermocline pack`";
constexpr std::uint64_t kDataMin = kBundleAlignment;

Status Damaged(const base::File& file, std::string_view what) {
  return base::DataLoss(file.path(), ": ", what, kPackAnew);
}

// Reads the prefix and checks its sizes against the file's size.
Result<BundlePrefix> ReadPrefix(const base::File& file) {
  BundlePrefix prefix;
  if (file.size() < kDataMin)
    return Damaged(file, StrCat("a bundle file of ", file.size(), " bytes, expected at least ",
                                kDataMin, "; it is cut off"));
  RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(&prefix, 1))));
  if (!std::equal(kBundleMagic.begin(), kBundleMagic.end(), prefix.magic))
    return base::InvalidArgument(file.path(), ": not a bundle file: it does not begin with ",
                                 kBundleMagic, kPackAnew);
  if (prefix.version != kBundleVersion)
    return base::Unimplemented(file.path(), ": version is ", prefix.version,
                               ", this program reads ", kBundleVersion,
                               "; use a newer program or make the file anew");
  if (prefix.file_bytes != file.size())
    return Damaged(file, StrCat("file_bytes is ", prefix.file_bytes, ", the file has ", file.size(),
                                "; it is cut off or damaged"));
  if (prefix.data_offset < kDataMin || prefix.data_offset % kBundleAlignment != 0 ||
      prefix.data_offset > file.size())
    return Damaged(file, StrCat("data_offset is ", prefix.data_offset, ", expected a multiple of ",
                                kBundleAlignment, " within the file's ", file.size(), " bytes"));
  if (sizeof(prefix) + std::uint64_t{prefix.header_bytes} + sizeof(BundleChecksum) >
      prefix.data_offset)
    return Damaged(file, StrCat("header_bytes is ", prefix.header_bytes,
                                ", more than fit before the data at ", prefix.data_offset));
  return prefix;
}

Status VerifyChecksum(const base::File& file, const BundlePrefix& prefix) {
  constexpr std::uint64_t kPiece = 1 << 20;
  const std::uint64_t end = prefix.data_offset - sizeof(BundleChecksum);
  base::Hasher hasher;
  std::vector<std::byte> piece(std::min(kPiece, end));
  for (std::uint64_t at = 0; at < end; at += kPiece) {
    const std::span<std::byte> bytes = std::span(piece).first(std::min(kPiece, end - at));
    RETURN_IF_ERROR(file.ReadAt(at, bytes));
    hasher.Add(bytes);
  }
  BundleChecksum stored;
  RETURN_IF_ERROR(file.ReadAt(end, std::as_writable_bytes(std::span(&stored, 1))));
  const base::Hash128 expected{.low = stored.low, .high = stored.high};
  const base::Hash128 found = hasher.Digest();
  if (found == expected) return OkStatus();
  return Damaged(file, StrCat("checksum of header and index is ", found.Hex(), ", expected ",
                              expected.Hex(), "; the file is damaged"));
}

Status CheckIdentity(const std::string& path, const Json& header, const BundleIdentity& expected) {
  const Json* hash = header.Find("model_hash");
  const std::string found = hash != nullptr && hash->is_string() ? hash->as_string() : "missing";
  if (found != expected.model_hash)
    return base::FailedPrecondition(path, ": model_hash is ", found, ", the model's is ",
                                    expected.model_hash,
                                    "; it belongs to another model: give another bundle file, or "
                                    "make it anew with `thermocline pack`");
  const std::pair<const char*, int> sizes[] = {{"hidden_size", expected.hidden_size},
                                               {"intermediate_size", expected.intermediate_size},
                                               {"num_hidden_layers", expected.num_hidden_layers}};
  for (const auto& [key, size] : sizes) {
    const Json* value = header.Find(key);
    if (value != nullptr && value->is_int() && value->as_int() == size) continue;
    return base::FailedPrecondition(path, ": ", key, " is ",
                                    value == nullptr ? "missing" : value->Dump(),
                                    ", the model's is ", size, kPackAnew);
  }
  return OkStatus();
}

kernels::DType ReadType(HeaderFields& layout, const char* key, std::int64_t row_elements) {
  const std::string name = layout.Text(key);
  for (int i = 0; i < kernels::kNumDTypes; ++i) {
    const auto type = static_cast<kernels::DType>(i);
    if (name == kernels::Traits(type).name && row_elements % kernels::Traits(type).block_size == 0)
      return type;
  }
  layout.Fail(key, StrCat(" is \"", name, "\", no type for rows of ", row_elements));
  return kernels::DType::kF32;
}

NeuronLayout ReadLayout(HeaderFields fields, const BundleIndex& index, int expert_neurons) {
  NeuronLayout layout;
  if (expert_neurons > 0) {
    layout.expert_neurons = fields.Int32("expert_neurons", expert_neurons, expert_neurons);
  }
  const std::int64_t row = layout.row_elements(index.hidden_size);
  layout.gated = !fields.Text("gate_type").empty();
  if (layout.gated) layout.gate_type = ReadType(fields, "gate_type", row);
  layout.up_type = ReadType(fields, "up_type", row);
  layout.down_type = ReadType(fields, "down_type", row);
  layout.SetRowBytes(index.hidden_size);
  layout.neurons_per_group = fields.Int32("neurons_per_group", 1, index.intermediate_size);
  layout.group_stride = fields.Int("group_stride", kBundleAlignment, kBundleStrideMax);
  const std::size_t group = layout.neurons_per_group * layout.bundle_bytes();
  if (layout.group_stride % kBundleAlignment != 0 || group > layout.group_stride)
    fields.Fail("group_stride", StrCat(" is ", layout.group_stride, ", expected a multiple of ",
                                       kBundleAlignment, " of at least ", group));
  return layout;
}

bool IsPermutation(const std::vector<std::uint32_t>& position) {
  std::vector<bool> taken(position.size());
  for (const std::uint32_t at : position) {
    if (at >= taken.size() || taken[at]) return false;
    taken[at] = true;
  }
  return true;
}

BundleIndex::Layer ReadLayer(HeaderFields fields, int num_neurons, const ArrayArea& area) {
  BundleIndex::Layer layer;
  layer.position = fields.Array<std::uint32_t>("position", num_neurons, area);
  layer.deciding_crc = fields.Array<std::uint32_t>("head_crc", num_neurons, area);
  layer.rest_crc = fields.Array<std::uint32_t>("rest_crc", num_neurons, area);
  if (fields.Optional("activations") != nullptr)
    layer.activations = fields.Array<std::uint32_t>("activations", num_neurons, area);
  if (!IsPermutation(layer.position)) fields.Fail("position", " is no order of the neurons");
  return layer;
}

// Reads the fields that only one kind has.
void ReadLayers(HeaderFields& fields, const std::string& path, const ArrayArea& area,
                int expert_neurons, BundleIndex& index, Status& status) {
  const Json::Array& layers = fields.List("layers", index.num_hidden_layers);
  if (index.kind == Kind::kNeurons) {
    index.layout = ReadLayout(fields.Object("layout"), index, expert_neurons);
  } else {
    index.image_bytes = fields.Int("image_bytes", kBundleAlignment, kBundleImageMax);
    if (index.image_bytes % kBundleAlignment != 0)
      fields.Fail("image_bytes", StrCat(" is no multiple of ", kBundleAlignment));
  }
  for (std::size_t i = 0; i < layers.size() && status.ok(); ++i) {
    HeaderFields layer(layers[i], StrCat(path, ": layer ", i, ": "), kPackAnew, status);
    if (index.kind == Kind::kNeurons)
      index.layers.push_back(ReadLayer(layer, index.intermediate_size, area));
    else
      index.image_crc.push_back(layer.Array<std::uint32_t>(
          "image_crc", static_cast<std::int64_t>(ImageChecks(index)), area));
  }
}

Status CheckSizes(const std::string& path, const BundleIdentity& e) {
  if (e.hidden_size >= 1 && e.hidden_size <= kBundleHiddenMax && e.intermediate_size >= 1 &&
      e.intermediate_size <= kBundleNeuronsMax && e.num_hidden_layers >= 1 &&
      e.num_hidden_layers <= kBundleLayersMax)
    return OkStatus();
  return base::InvalidArgument(path, ": ", e.num_hidden_layers, " layers of ", e.intermediate_size,
                               " neurons of ", e.hidden_size, " inputs; bundle files hold up to ",
                               kBundleLayersMax, ", ", kBundleNeuronsMax, " and ",
                               kBundleHiddenMax);
}

}  // namespace

void NeuronLayout::SetRowBytes(int hidden_size) {
  const auto bytes = [&](kernels::DType type) {
    return static_cast<std::size_t>(row_elements(hidden_size) / kernels::Traits(type).block_size) *
           kernels::Traits(type).block_bytes;
  };
  gate_bytes = gated ? bytes(gate_type) : 0;
  up_bytes = bytes(up_type);
  down_bytes = bytes(down_type);
}

std::string BundlePath(const std::string& model_path) { return model_path + ".tcb"; }

Result<BundleIndex> ReadBundleIndex(const std::string& path, const BundleIdentity& expected) {
  RETURN_IF_ERROR(CheckSizes(path, expected));
  ASSIGN_OR_RETURN(const auto file, base::OpenFile(path));
  ASSIGN_OR_RETURN(const BundlePrefix prefix, ReadPrefix(*file));
  RETURN_IF_ERROR(VerifyChecksum(*file, prefix));
  constexpr std::uint32_t kHeaderBytesMax = 16 << 20, kHeaderValuesMax = 1 << 20;
  if (prefix.header_bytes > kHeaderBytesMax)
    return base::DataLoss(path, ": the header has ", prefix.header_bytes, " bytes; at most ",
                          kHeaderBytesMax, " are read");
  std::string text(prefix.header_bytes, '\0');
  RETURN_IF_ERROR(file->ReadAt(sizeof(prefix), std::as_writable_bytes(std::span(text))));
  auto parsed = base::ParseJsonOf(text, kHeaderValuesMax);
  if (!parsed.ok()) return parsed.status().Annotate(path + ": header");
  RETURN_IF_ERROR(CheckIdentity(path, *parsed, expected));

  BundleIndex index{.model_hash = expected.model_hash,
                    .hidden_size = expected.hidden_size,
                    .intermediate_size = expected.intermediate_size,
                    .num_hidden_layers = expected.num_hidden_layers,
                    .data_offset = prefix.data_offset,
                    .file_bytes = prefix.file_bytes};
  Status status;
  HeaderFields fields(*parsed, path + ": ", kPackAnew, status);
  const std::string kind = fields.Text("kind");
  index.kind = kind == "layers" ? Kind::kLayers : Kind::kNeurons;
  if (kind != "layers" && kind != "neurons")
    fields.Fail("kind", StrCat(" is \"", kind, "\", expected neurons or layers"));
  index.profiled_tokens = fields.Int("profiled_tokens", 0, INT64_MAX);
  index.order = fields.Text("order");
  const std::uint64_t begin = base::ArrayAligned(sizeof(prefix) + std::uint64_t{text.size()});
  const std::uint64_t end = prefix.data_offset - sizeof(BundleChecksum);
  ReadLayers(fields, path, {.file = *file, .begin = std::min(begin, end), .end = end},
             expected.expert_neurons, index, status);
  RETURN_IF_ERROR(status);
  if (index.file_bytes - index.data_offset != DataBytes(index))
    return Damaged(*file, StrCat("the data has ", index.file_bytes - index.data_offset,
                                 " bytes, expected ", DataBytes(index)));
  return index;
}

}  // namespace thermocline::store
