#include "engine/load/adapters.h"

#include <algorithm>
#include <optional>

#include "engine/base/index.h"
#include "engine/base/strings.h"
#include "engine/model/open/open_adapter.h"
#include "kernels/quantize.h"

namespace thermocline::load {
namespace {

// f16 where that loses nothing, for half the bytes.
kernels::DType TypeOf(const std::vector<float>& factor) {
  const bool half = std::all_of(factor.begin(), factor.end(), [](float value) {
    return kernels::HalfToFloat(kernels::FloatToHalf(value)) == value;
  });
  return half ? kernels::DType::kF16 : kernels::DType::kF32;
}

// The next factor begins at a line of the cache.
std::size_t Aligned(std::size_t bytes) { return base::RoundUp(bytes, 64); }

std::size_t PackedBytes(const std::vector<float>& factor, int rows, int cols) {
  return Aligned(kernels::PackedBytes(TypeOf(factor), rows, cols));
}

kernels::PackedMatrix Pack(const std::vector<float>& factor, int rows, int cols, std::byte*& at) {
  const kernels::PackedMatrix packed{TypeOf(factor), rows, cols,
                                     reinterpret_cast<const std::uint8_t*>(at)};
  const std::size_t row_bytes = kernels::RowBytes(packed.type, cols);
  std::vector<std::uint8_t> stored(kernels::kPanelRows * row_bytes);
  auto* panel = reinterpret_cast<std::uint8_t*>(at);
  for (int row = 0; row < rows; row += kernels::kPanelRows) {
    const int count = std::min(kernels::kPanelRows, rows - row);
    for (int i = 0; i < count; ++i)
      kernels::QuantizeRow(packed.type, factor.data() + base::Area(row + i, cols), cols,
                           stored.data() + i * row_bytes);
    kernels::PackPanel(packed.type, stored.data(), count, cols, panel);
    panel += kernels::PanelBytes(packed.type, cols);
  }
  at += PackedBytes(factor, rows, cols);
  return packed;
}

// A matrix of the model that an adapter may change.
struct Target {
  const model::Linear* linear = nullptr;
  int rows = 0, cols = 0;
};

Target TargetOf(const model::Linear& linear) {
  return {&linear, linear.weight.rows, linear.weight.cols};
}

std::optional<Target> TargetIn(const model::LayerWeights& w, std::string_view matrix) {
  if (matrix == "attn_q") return TargetOf(w.q);
  if (matrix == "attn_k") return TargetOf(w.k);
  if (matrix == "attn_v") return TargetOf(w.v);
  if (matrix == "attn_output") return TargetOf(w.attn_output);
  if (matrix == "ffn_gate") return TargetOf(w.gate.linear);
  if (matrix == "ffn_up") return TargetOf(w.up.linear);
  if (matrix != "ffn_down") return std::nullopt;
  if (w.down_rows.rows > 0) return Target{&w.down, w.down_rows.cols, w.down_rows.rows};
  return TargetOf(w.down);
}

// `name`: "blk.0.attn_q.weight".
Result<Target> FindTarget(const std::string& name, const model::Weights& weights) {
  constexpr std::string_view kPrefix = "blk.", kSuffix = ".weight";
  const std::size_t dot = name.find('.', kPrefix.size());
  const bool of_layer = name.starts_with(kPrefix) && name.ends_with(kSuffix) &&
                        dot != std::string::npos && dot + kSuffix.size() < name.size();
  const auto layer = of_layer ? base::ParseNumber<int>(std::string_view(name).substr(
                                    kPrefix.size(), dot - kPrefix.size()))
                              : std::nullopt;
  if (!layer.has_value())
    return base::Unimplemented("'", name, "' is changed: only matrices of attention and of dense ",
                               "networks are supported");
  if (*layer < 0 || *layer >= base::IntSize(weights.layers))
    return base::InvalidArgument("'", name, "' is changed, and the model has ",
                                 weights.layers.size(), " layers");
  const std::optional<Target> target =
      TargetIn(weights.layers[*layer],
               std::string_view(name).substr(dot + 1, name.size() - dot - 1 - kSuffix.size()));
  if (!target.has_value())
    return base::Unimplemented("'", name, "' is changed: only attention's q, k, v and output and ",
                               "a network's gate, up and down are supported");
  if (target->rows == 0)
    return base::InvalidArgument("'", name, "' is changed, and the model has no such matrix");
  return *target;
}

Status AddUpdates(const model::Adapter& read, int adapter, const model::Weights& weights,
                  std::byte*& at, nn::UpdateTable& updates) {
  for (const auto& [matrix, part] : read.parts) {
    ASSIGN_OR_RETURN(const Target target, FindTarget(matrix, weights));
    if (target.rows != part.rows || target.cols != part.cols)
      return base::InvalidArgument("'", matrix, "' is changed by ", part.rows, " x ", part.cols,
                                   ", and the model's has ", target.rows, " x ", target.cols,
                                   ": the adapter is made for another model");
    nn::UpdateFactors factors{.adapter = adapter, .scale = part.scale};
    factors.a = Pack(part.a, part.rank, part.cols, at);
    factors.b = Pack(part.b, part.rows, part.rank, at);
    updates[target.linear].push_back(factors);
  }
  return OkStatus();
}

}  // namespace

std::vector<float> Adapters::defaults() const {
  std::vector<float> scales;
  for (const LoadedAdapter& adapter : list) scales.push_back(adapter.scale);
  return scales;
}

std::size_t OpenedAdapters::bytes() const {
  std::size_t bytes = 0;
  for (const model::Adapter& adapter : read) {
    for (const auto& [matrix, part] : adapter.parts)
      bytes +=
          PackedBytes(part.a, part.rank, part.cols) + PackedBytes(part.b, part.rows, part.rank);
  }
  return bytes;
}

Result<OpenedAdapters> OpenAdapters(const std::string& lora, const model::ModelConfig& config) {
  OpenedAdapters opened;
  ASSIGN_OR_RETURN(opened.choices, ParseAdapters(lora));
  for (const AdapterChoice& choice : opened.choices) {
    ASSIGN_OR_RETURN(model::Adapter adapter, model::OpenAdapter(choice.path, config));
    opened.read.push_back(std::move(adapter));
  }
  return opened;
}

Result<std::unique_ptr<Adapters>> PackAdapters(OpenedAdapters opened,
                                               const model::Weights& weights) {
  if (opened.read.empty()) return std::unique_ptr<Adapters>();
  auto adapters = std::make_unique<Adapters>();
  ASSIGN_OR_RETURN(adapters->memory, base::HugeBuffer::Allocate(opened.bytes()));
  std::byte* at = adapters->memory.data();
  for (int i = 0; i < base::IntSize(opened.read); ++i) {
    model::Adapter& read = opened.read[i];
    RETURN_IF_ERROR(AddUpdates(read, i, weights, at, adapters->updates)
                        .Annotate(StrCat("LoRA adapter ", read.path)));
    const AdapterChoice& choice = opened.choices[i];
    adapters->list.push_back({choice.name, read.path, read.hash, choice.scale});
    read.parts.clear();
  }
  return adapters;
}

}  // namespace thermocline::load
