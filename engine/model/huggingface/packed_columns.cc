#include "engine/model/huggingface/packed_columns.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/model/code_values.h"

namespace thermocline::model {
namespace {

constexpr int kWordBits = 32;

// The places of consecutive outputs' codes in an AWQ word. Source: AutoAWQ's packing_utils.
constexpr int kAwqOrder[] = {0, 4, 1, 5, 2, 6, 3, 7};

// The tensors of one matrix, in memory.
struct Loaded {
  std::vector<std::uint32_t> codes, zeros;
  std::vector<float> scales;
  std::vector<std::int32_t> groups;  // of inputs
};

Status Read(const ModelFile& model, const StoredTensor& tensor, std::span<std::byte> out) {
  return model.files[tensor.file]->ReadAt(tensor.offset(), out);
}

Result<std::shared_ptr<const Loaded>> Load(const ModelFile& model, const PackedColumns& p) {
  auto out = std::make_shared<Loaded>();
  const std::int64_t per_word = kWordBits / p.bits,
                     group_size = (p.inputs + p.num_groups - 1) / p.num_groups;
  out->groups.resize(p.inputs);
  for (std::int64_t i = 0; i < p.inputs; ++i)
    out->groups[i] = static_cast<std::int32_t>(i / group_size);
  if (p.groups.has_value())
    RETURN_IF_ERROR(Read(model, *p.groups, std::as_writable_bytes(std::span(out->groups))));
  if (std::any_of(out->groups.begin(), out->groups.end(),
                  [&](std::int32_t group) { return group < 0 || group >= p.num_groups; }))
    return base::DataLoss("tensor '", p.codes.name, "' has an input of a group beyond ",
                          p.num_groups);
  out->zeros.resize(p.num_groups * (p.outputs / per_word));
  RETURN_IF_ERROR(Read(model, p.zeros, std::as_writable_bytes(std::span(out->zeros))));
  out->scales.resize(p.num_groups * p.outputs);
  std::vector<std::byte> scales(out->scales.size() * ScaleBytes(p.scales.type));
  RETURN_IF_ERROR(Read(model, p.scales, scales));
  ToFloats(p.scales.type, scales, out->scales);
  out->codes.resize(p.inputs * p.outputs / per_word);
  RETURN_IF_ERROR(Read(model, p.codes, std::as_writable_bytes(std::span(out->codes))));
  return std::shared_ptr<const Loaded>(std::move(out));
}

// Code `at` of a word.
int CodeOf(const PackedColumns& p, std::uint32_t word, std::int64_t at) {
  const int place = p.awq ? kAwqOrder[at] : static_cast<int>(at);
  return static_cast<int>(word >> (place * p.bits) & ((1U << p.bits) - 1));
}

void Decode(const PackedColumns& p, const Loaded& l, std::int64_t row, std::span<float> out) {
  const std::int64_t per_word = kWordBits / p.bits, row_words = p.outputs / per_word,
                     word = row / per_word, at = row % per_word;
  for (std::int64_t i = 0; i < p.inputs; ++i) {
    const std::int64_t group = l.groups[i];
    const int code = p.awq ? CodeOf(p, l.codes[i * row_words + word], at)
                           : CodeOf(p, l.codes[i / per_word * p.outputs + row], i % per_word),
              zero = CodeOf(p, l.zeros[group * row_words + word], at) + p.zero_plus;
    out[i] = static_cast<float>(code - zero) * l.scales[group * p.outputs + row];
  }
}

// The matrices read last. Loads one at a time.
class Kept {
 public:
  Result<std::shared_ptr<const Loaded>> Get(const ModelFile& model, const PackedColumns& p) {
    const base::MutexLock lock(mutex_);
    for (const auto& [name, loaded] : kept_)
      if (name == p.codes.name) return loaded;
    ASSIGN_OR_RETURN(auto loaded, Load(model, p));
    if (kept_.size() == kKept) kept_.erase(kept_.begin());
    kept_.emplace_back(p.codes.name, loaded);
    return loaded;
  }

 private:
  static constexpr std::size_t kKept = 8;  // threads that read rows of several

  base::Mutex mutex_;
  std::vector<std::pair<std::string, std::shared_ptr<const Loaded>>> kept_ GUARDED_BY(mutex_);
};

}  // namespace

ColumnsReader ReaderOfColumns(const ModelFile& model) {
  return [&model, kept = std::make_shared<Kept>()](PackedColumns packed) -> FloatSource {
    return [&model, kept, p = std::move(packed)](std::int64_t row, std::span<float> out) -> Status {
      ASSIGN_OR_RETURN(const auto loaded, kept->Get(model, p));
      Decode(p, *loaded, row, out);
      return OkStatus();
    };
  };
}

}  // namespace thermocline::model
