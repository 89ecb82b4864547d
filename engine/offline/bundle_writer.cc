#include "engine/offline/bundle_writer.h"

#include <algorithm>
#include <cstring>

#include "engine/base/hash.h"
#include "engine/base/header_fields.h"
#include "engine/base/index.h"
#include "engine/base/json.h"
#include "engine/base/output_file.h"
#include "engine/store/bundle_layout.h"
#include "kernels/crc32c.h"

namespace thermocline::offline {
namespace {

using Kind = store::BundleIndex::Kind;
constexpr std::string_view kPartMagic = "TCBPART1";
constexpr std::size_t kWriteBytes = std::size_t{8} << 20;  // at a time

struct PartState {
  char magic[8] = {};
  std::uint32_t layers_done = 0, zero = 0;
  std::uint64_t settings_low = 0, settings_high = 0;
};
static_assert(sizeof(PartState) == sizeof(store::BundlePrefix));

// Returns the names of a layer's arrays, and their numbers of elements.
std::vector<const char*> ArrayNames(const store::BundleIndex& index) {
  if (index.kind == Kind::kLayers) return {"image_crc"};
  std::vector<const char*> names = {"position", "head_crc", "rest_crc"};
  if (!index.layers[0].activations.empty()) names.push_back("activations");
  return names;
}
std::uint64_t ArrayCount(const store::BundleIndex& index) {
  return index.kind == Kind::kLayers ? store::ImageChecks(index)
                                     : static_cast<std::uint64_t>(index.intermediate_size);
}
std::uint64_t ArrayStride(const store::BundleIndex& index) {
  return base::ArrayAligned(sizeof(std::uint32_t) * ArrayCount(index));
}

std::string HeaderText(const store::BundleIndex& index) {
  Json::Array layers;
  std::uint64_t at = 0;
  for (int i = 0; i < index.num_hidden_layers; ++i) {
    Json layer{Json::Object()};
    for (const char* name : ArrayNames(index)) {
      layer.Set(name, Json::Object{{"at", at}, {"count", ArrayCount(index)}});
      at += ArrayStride(index);
    }
    layers.push_back(std::move(layer));
  }
  const bool neurons = index.kind == Kind::kNeurons;
  Json header = Json::Object{{"kind", neurons ? "neurons" : "layers"},
                             {"model_hash", index.model_hash},
                             {"hidden_size", index.hidden_size},
                             {"intermediate_size", index.intermediate_size},
                             {"num_hidden_layers", index.num_hidden_layers},
                             {"profiled_tokens", index.profiled_tokens},
                             {"order", index.order}};
  const store::NeuronLayout& layout = index.layout;
  if (neurons) {
    Json written = Json::Object{{"gate_type", layout.gated ? Traits(layout.gate_type).name : ""},
                                {"up_type", Traits(layout.up_type).name},
                                {"down_type", Traits(layout.down_type).name},
                                {"neurons_per_group", layout.neurons_per_group},
                                {"group_stride", layout.group_stride}};
    if (layout.of_experts()) written.Set("expert_neurons", layout.expert_neurons);
    header.Set("layout", std::move(written));
  } else {
    header.Set("image_bytes", index.image_bytes);
  }
  header.Set("layers", std::move(layers));
  return header.Dump();
}

// Rejects an index that ReadBundleIndex would reject.
Status CheckIndex(const std::string& path, const store::BundleIndex& index) {
  const bool neurons = index.kind == Kind::kNeurons;
  const std::size_t layers = std::max(index.num_hidden_layers, 0);
  const std::size_t f = std::max(index.intermediate_size, 0);
  const store::NeuronLayout& layout = index.layout;
  bool good = layers > 0 && layers <= store::kBundleLayersMax && f > 0 &&
              f <= store::kBundleNeuronsMax && index.hidden_size > 0 &&
              index.hidden_size <= store::kBundleHiddenMax &&
              (!neurons || index.layers.size() == layers);
  if (neurons) {
    good = good && layout.neurons_per_group > 0 &&
           layout.neurons_per_group <= index.intermediate_size &&
           layout.group_stride % store::kBundleAlignment == 0 &&
           layout.group_stride <= store::kBundleStrideMax &&
           layout.neurons_per_group * layout.bundle_bytes() <= layout.group_stride;
    for (const store::BundleIndex::Layer& layer : index.layers)
      good = good && layer.position.size() == f &&
             layer.activations.size() == index.layers[0].activations.size() &&
             (layer.activations.empty() || layer.activations.size() == f);
  } else {
    good = good && index.image_bytes > 0 && index.image_bytes % store::kBundleAlignment == 0 &&
           index.image_bytes <= store::kBundleImageMax;
  }
  if (good) return OkStatus();
  return base::InvalidArgument(path, ": ", layers, " layers of ", f, " neurons of ",
                               index.hidden_size, " inputs in groups of ", layout.group_stride,
                               " bytes or images of ", index.image_bytes,
                               " are beyond what a bundle file holds; choose smaller groups");
}

void CheckRows(const store::BundleIndex& index, const BundleWriter::LayerRows& rows) {
  const store::NeuronLayout& layout = index.layout;
  const auto fits = [&](const kernels::RowMatrix& m, kernels::DType type) {
    return m.type == type && m.rows == index.intermediate_size &&
           m.cols == layout.row_elements(index.hidden_size);
  };
  CHECK(!layout.gated || fits(rows.gate, layout.gate_type));
  CHECK(fits(rows.up, layout.up_type) && fits(rows.down, layout.down_type));
}

void CopyBundle(const store::NeuronLayout& layout, const BundleWriter::LayerRows& rows, int neuron,
                std::byte* out) {
  if (layout.gated) std::memcpy(out, rows.gate.row(neuron), layout.gate_bytes);
  out += layout.gate_bytes;
  std::memcpy(out, rows.up.row(neuron), layout.up_bytes);
  std::memcpy(out + layout.up_bytes, rows.down.row(neuron), layout.down_bytes);
}

std::uint32_t Crc(std::span<const std::byte> bytes) {
  return kernels::Crc32c(bytes.data(), bytes.size());
}

}  // namespace

Result<std::unique_ptr<BundleWriter>> BundleWriter::Open(const std::string& path,
                                                         store::BundleIndex index) {
  RETURN_IF_ERROR(CheckIndex(path, index));
  RETURN_IF_ERROR(
      base::CheckReplaceable(path, base::KindByMagic("a bundle file", store::kBundleMagic)));
  ASSIGN_OR_RETURN(auto file, base::PartFile::Open(path));
  std::unique_ptr<BundleWriter> writer(new BundleWriter(std::move(file), std::move(index)));
  writer->PlanFile();
  RETURN_IF_ERROR(writer->Resume());
  const bool fresh = writer->layers_done_ == 0;
  if (fresh) RETURN_IF_ERROR(writer->file_->Clear());
  Status reserved = writer->file_->Reserve(writer->index_.file_bytes);
  if (reserved.ok() && fresh) reserved = writer->WriteState();
  if (!reserved.ok()) {
    if (fresh) writer->file_->Discard();
    return reserved;
  }
  return writer;
}

void BundleWriter::PlanFile() {
  const std::size_t f = index_.intermediate_size;
  for (store::BundleIndex::Layer& layer : index_.layers) {
    layer.deciding_crc.assign(f, 0);
    layer.rest_crc.assign(f, 0);
  }
  const std::size_t layers = index_.num_hidden_layers;
  if (index_.kind == Kind::kLayers)
    index_.image_crc.assign(layers, std::vector<std::uint32_t>(store::ImageChecks(index_)));
  header_ = HeaderText(index_);
  const std::uint64_t arrays = base::ArrayAligned(sizeof(store::BundlePrefix) + header_.size());
  index_.data_offset =
      store::BlockAligned(arrays + layers * ArrayNames(index_).size() * ArrayStride(index_) +
                          sizeof(store::BundleChecksum));
  index_.file_bytes = index_.data_offset + store::DataBytes(index_);

  base::Hasher hasher;
  hasher.Add(header_);
  for (const store::BundleIndex::Layer& layer : index_.layers) {
    hasher.Add(std::as_bytes(std::span(layer.position)));
    hasher.Add(std::as_bytes(std::span(layer.activations)));
  }
  const base::Hash128 settings = hasher.Digest();
  settings_low_ = settings.low;
  settings_high_ = settings.high;
}

// Determines how many layers of the part are usable.
Status BundleWriter::Resume() {
  PartState state;
  if (file_->size() != index_.file_bytes) return OkStatus();
  RETURN_IF_ERROR(file_->ReadAt(0, std::as_writable_bytes(std::span(&state, 1))));
  if (!std::equal(kPartMagic.begin(), kPartMagic.end(), state.magic) ||
      state.settings_low != settings_low_ || state.settings_high != settings_high_ ||
      state.layers_done > static_cast<std::uint32_t>(index_.num_hidden_layers))
    return OkStatus();
  layers_done_ = state.layers_done;
  for (int layer = 0; layer < layers_done_; ++layer) {
    const auto arrays = Arrays(layer);
    for (std::size_t i = 0; i < arrays.size(); ++i)
      RETURN_IF_ERROR(
          file_->ReadAt(ArrayOffset(layer, i), std::as_writable_bytes(std::span(*arrays[i]))));
  }
  if (layers_done_ == 0) return OkStatus();
  ASSIGN_OR_RETURN(const bool whole, LastLayerIsWhole());
  if (!whole) layers_done_ = 0;
  return OkStatus();
}

Result<bool> BundleWriter::LastLayerIsWhole() {
  const int layer = layers_done_ - 1;
  if (index_.kind == Kind::kNeurons) {
    const store::BundleIndex::Layer& l = index_.layers[layer];
    std::vector<std::byte> bundle(index_.layout.bundle_bytes());
    const std::size_t deciding = index_.layout.deciding_bytes();
    for (int i = 0; i < base::IntSize(l.position); ++i) {
      if (l.position[i] >= l.position.size()) return false;
      RETURN_IF_ERROR(file_->ReadAt(index_.BundleOffset(layer, i), bundle));
      const std::span<const std::byte> bytes(bundle);
      if (Crc(bytes.first(deciding)) != l.deciding_crc[i] ||
          Crc(bytes.subspan(deciding)) != l.rest_crc[i])
        return false;
    }
    return true;
  }
  std::vector<std::byte> piece(store::kLayerCheckBytes);
  for (std::uint64_t at = 0, i = 0; at < index_.image_bytes; at += store::kLayerCheckBytes, ++i) {
    const auto bytes = std::span(piece).first(
        std::min<std::uint64_t>(store::kLayerCheckBytes, index_.image_bytes - at));
    RETURN_IF_ERROR(file_->ReadAt(index_.ImageOffset(layer) + at, bytes));
    if (Crc(bytes) != index_.image_crc[layer][i]) return false;
  }
  return true;
}

std::vector<std::vector<std::uint32_t>*> BundleWriter::Arrays(int layer) {
  const std::size_t i = layer;
  if (index_.kind == Kind::kLayers) return {&index_.image_crc[i]};
  store::BundleIndex::Layer& l = index_.layers[i];
  std::vector<std::vector<std::uint32_t>*> arrays = {&l.position, &l.deciding_crc, &l.rest_crc};
  if (!l.activations.empty()) arrays.push_back(&l.activations);
  return arrays;
}

std::uint64_t BundleWriter::ArrayOffset(int layer, std::size_t array) const {
  const std::uint64_t before = layer * ArrayNames(index_).size() + array;
  return base::ArrayAligned(sizeof(store::BundlePrefix) + header_.size()) +
         before * ArrayStride(index_);
}

Status BundleWriter::AddNeurons(const LayerRows& rows) {
  const store::NeuronLayout& layout = index_.layout;
  CHECK(index_.kind == Kind::kNeurons && layers_done_ < index_.num_hidden_layers);
  CheckRows(index_, rows);
  store::BundleIndex::Layer& layer = index_.layers[layers_done_];
  std::vector<std::uint32_t> at(layer.position.size());  // the neuron at each place
  for (std::size_t i = 0; i < at.size(); ++i) at[layer.position[i]] = static_cast<std::uint32_t>(i);

  const std::size_t per_group = layout.neurons_per_group;
  const std::size_t groups = std::max<std::size_t>(1, kWriteBytes / layout.group_stride);
  std::vector<std::byte> buffer(groups * layout.group_stride);
  std::uint64_t offset =
      index_.data_offset + layers_done_ * index_.groups_per_layer() * layout.group_stride;
  for (std::size_t begin = 0; begin < at.size(); begin += groups * per_group) {
    std::fill(buffer.begin(), buffer.end(), std::byte{0});
    const std::size_t end = std::min(at.size(), begin + groups * per_group);
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t k = i - begin;
      const std::span<std::byte> bundle(buffer.data() + k / per_group * layout.group_stride +
                                            k % per_group * layout.bundle_bytes(),
                                        layout.bundle_bytes());
      CopyBundle(layout, rows, at[i], bundle.data());
      layer.deciding_crc[at[i]] = Crc(bundle.first(layout.deciding_bytes()));
      layer.rest_crc[at[i]] = Crc(bundle.subspan(layout.deciding_bytes()));
    }
    const std::size_t used = (end - begin + per_group - 1) / per_group * layout.group_stride;
    RETURN_IF_ERROR(file_->WriteAt(offset, std::span(buffer).first(used)));
    offset += used;
  }
  return FinishLayer();
}

Status BundleWriter::AddImage(std::span<const std::byte> image) {
  CHECK(index_.kind == Kind::kLayers && layers_done_ < index_.num_hidden_layers);
  CHECK_EQ(image.size(), index_.image_bytes);
  auto& crc = index_.image_crc[layers_done_];
  for (std::size_t i = 0; i < crc.size(); ++i) {
    const std::size_t begin = i * store::kLayerCheckBytes;
    crc[i] = Crc(image.subspan(begin, std::min(store::kLayerCheckBytes, image.size() - begin)));
  }
  RETURN_IF_ERROR(file_->WriteAt(index_.ImageOffset(layers_done_), image));
  return FinishLayer();
}

// Writes the CRCs after the data, and then the state that counts the layer as done.
Status BundleWriter::FinishLayer() {
  const auto arrays = Arrays(layers_done_);
  for (std::size_t i = 0; i < arrays.size(); ++i)
    RETURN_IF_ERROR(
        file_->WriteAt(ArrayOffset(layers_done_, i), std::as_bytes(std::span(*arrays[i]))));
  RETURN_IF_ERROR(file_->Sync());
  ++layers_done_;
  return WriteState();
}

Status BundleWriter::WriteState() {
  PartState state{.layers_done = static_cast<std::uint32_t>(layers_done_),
                  .settings_low = settings_low_,
                  .settings_high = settings_high_};
  std::copy(kPartMagic.begin(), kPartMagic.end(), state.magic);
  RETURN_IF_ERROR(file_->WriteAt(0, std::as_bytes(std::span(&state, 1))));
  return file_->Sync();
}

Status BundleWriter::Commit() {
  CHECK_EQ(layers_done_, index_.num_hidden_layers);
  store::BundlePrefix prefix{.version = store::kBundleVersion,
                             .header_bytes = static_cast<std::uint32_t>(header_.size()),
                             .file_bytes = index_.file_bytes,
                             .data_offset = index_.data_offset};
  std::copy(store::kBundleMagic.begin(), store::kBundleMagic.end(), prefix.magic);
  std::vector<std::byte> index(index_.data_offset);
  std::memcpy(index.data(), &prefix, sizeof(prefix));
  std::memcpy(index.data() + sizeof(prefix), header_.data(), header_.size());
  for (int layer = 0; layer < index_.num_hidden_layers; ++layer) {
    const auto arrays = Arrays(layer);
    for (std::size_t i = 0; i < arrays.size(); ++i)
      std::memcpy(index.data() + ArrayOffset(layer, i), arrays[i]->data(),
                  arrays[i]->size() * sizeof(std::uint32_t));
  }
  const std::span<std::byte> hashed =
      std::span(index).first(index.size() - sizeof(store::BundleChecksum));
  base::Hasher hasher;
  hasher.Add(hashed);
  const base::Hash128 hash = hasher.Digest();
  const store::BundleChecksum checksum{.low = hash.low, .high = hash.high};
  std::memcpy(index.data() + hashed.size(), &checksum, sizeof(checksum));
  RETURN_IF_ERROR(file_->WriteAt(0, index));
  return file_->Commit();
}

}  // namespace thermocline::offline
