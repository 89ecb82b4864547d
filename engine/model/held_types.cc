#include "engine/model/held_types.h"

#include <array>
#include <map>

#include "engine/base/log.h"
#include "kernels/block_codecs.h"

namespace thermocline::model {
namespace {

using kernels::DType;

// Of a type's block, the block that holds the same weights.
struct HeldType {
  int ggml_id;
  DType as;
  void (*convert)(const std::uint8_t*, std::uint8_t*);
};
constexpr std::array kHeldTypes = {HeldType{34, DType::kTQ2_0, kernels::ConvertTq1ToTq2}};

const HeldType* FindHeldType(const FileType& type) {
  for (const HeldType& held : kHeldTypes) {
    if (held.ggml_id == type.ggml_id) return &held;
  }
  return nullptr;
}

TensorInfo Held(const ModelFile& model, const TensorInfo& stored, const HeldType& held) {
  TensorInfo out = stored;
  out.type = &FileTypeOf(held.as);
  out.bytes = static_cast<std::uint64_t>(out.rows) * (out.cols / out.type->block_size) *
              out.type->block_bytes;
  out.order = {};
  out.source = std::make_shared<const RowSource>(
      [&model, stored, convert = held.convert, to_bytes = out.type->block_bytes](
          std::int64_t row, std::span<std::byte> to) -> Status {
        std::vector<std::byte> from(stored.row_bytes());
        RETURN_IF_ERROR(model.ReadRows(stored, row, 1, from));
        const std::int64_t blocks = stored.cols / stored.type->block_size;
        for (std::int64_t b = 0; b < blocks; ++b)
          convert(reinterpret_cast<const std::uint8_t*>(&from[b * stored.type->block_bytes]),
                  reinterpret_cast<std::uint8_t*>(&to[b * to_bytes]));
        return OkStatus();
      });
  return out;
}

}  // namespace

void HoldInNativeTypes(ModelFile& model) {
  std::map<std::string, std::pair<int, const FileType*>> counts;
  for (TensorInfo& tensor : model.tensors) {
    const HeldType* held = FindHeldType(*tensor.type);
    if (held == nullptr) continue;
    auto& [count, as] = counts[tensor.type->name];
    ++count;
    as = &FileTypeOf(held->as);
    tensor = Held(model, tensor, *held);
  }
  for (const auto& [name, held] : counts)
    base::LogInfo(held.first, " tensors of type ", name, " are held as ", held.second->name,
                  ", the same weights in ", held.second->block_bytes, " bytes for each ",
                  held.second->block_size);
}

}  // namespace thermocline::model
