#include "engine/model/fingerprint.h"

#include <algorithm>

#include "engine/base/hash.h"

namespace thermocline::model {
namespace {

constexpr std::uint64_t kSampleBytes = 4096;  // of either end of a tensor

std::string ShapesOf(const ModelConfig& c) {
  return StrCat(c.architecture == nullptr ? "" : c.architecture->name, " ", c.hidden_size, " ",
                c.intermediate_size, " ", c.num_hidden_layers, " ", c.num_attention_heads, " ",
                c.num_key_value_heads, " ", c.head_dim, " ", c.vocab_size, "\n");
}

// Adds the first, or the last, kSampleBytes of `tensor`, read by whole rows.
Status AddEnd(const ModelFile& file, const TensorInfo& tensor, bool last, base::Hasher& hasher) {
  const std::uint64_t row_bytes = tensor.row_bytes();
  const auto rows =
      std::min(tensor.rows, static_cast<std::int64_t>((kSampleBytes + row_bytes - 1) / row_bytes));
  std::vector<std::byte> bytes(rows * row_bytes);
  RETURN_IF_ERROR(file.ReadRows(tensor, last ? tensor.rows - rows : 0, rows, bytes));
  const std::size_t count = std::min<std::size_t>(bytes.size(), kSampleBytes);
  hasher.Add(last ? std::span(bytes).last(count) : std::span(bytes).first(count));
  return OkStatus();
}

}  // namespace

Result<std::string> Fingerprint(const ModelFile& file) {
  base::Hasher hasher;
  hasher.Add(ShapesOf(file.config));
  std::vector<const TensorInfo*> tensors;
  for (const TensorInfo& tensor : file.tensors) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->name < b->name; });
  for (const TensorInfo* tensor : tensors) {
    hasher.Add(StrCat(tensor->name, " ", tensor->type->name, " ", tensor->rows, " ", tensor->cols,
                      " ", tensor->plus, "\n"));
    if (tensor->bytes == 0) continue;
    RETURN_IF_ERROR(AddEnd(file, *tensor, /*last=*/false, hasher));
    RETURN_IF_ERROR(AddEnd(file, *tensor, /*last=*/true, hasher));
  }
  return hasher.Digest().Hex();
}

}  // namespace thermocline::model
