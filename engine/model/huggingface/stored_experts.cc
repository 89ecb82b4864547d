#include "engine/model/huggingface/stored_experts.h"

#include <algorithm>

#include "engine/model/derived_tensor.h"

namespace thermocline::model {
namespace {

constexpr int kNibblesPerByte = 2, kValuesPerScale = 32;

// Converts the tensors of a layer's experts.
class Unpacker {
 public:
  explicit Unpacker(ModelFile& model) : model_(model) {}

  Status Run() {
    for (const TensorInfo& tensor : model_.tensors) RETURN_IF_ERROR(One(tensor));
    model_.tensors = std::move(out_);
    return OkStatus();
  }

 private:
  Status One(const TensorInfo& tensor) {
    const std::size_t dot = tensor.name.rfind('.');
    const std::string module = tensor.name.substr(0, dot), suffix = tensor.name.substr(dot);
    const bool gate_up = module.ends_with(".ffn_gate_up_exps");
    if ((!gate_up && !module.ends_with(".ffn_down_exps")) || (!gate_up && suffix == ".bias")) {
      out_.push_back(tensor);
      return OkStatus();
    }
    if (suffix == ".scales") return OkStatus();  // used with its blocks
    if (!gate_up) return Part(tensor, module, suffix, {});
    std::string part = module;
    part.replace(part.find("_gate_up_"), 9, "_gate_");
    if (tensor.cols % 2 != 0 || tensor.cols > (1 << 24))
      return base::InvalidArgument("tensor '", tensor.name, "' has ", tensor.cols,
                                   " columns; gate and up are half each");
    RETURN_IF_ERROR(Part(tensor, part, suffix, Half(0, tensor.cols)));
    part.replace(part.find("_gate_"), 6, "_up_");
    return Part(tensor, part, suffix, Half(1, tensor.cols));
  }

  // Selects gpt-oss's every second row, or a half of Llama 4's `rows`.
  HeadOrder Half(int first, std::int64_t rows) const {
    const bool interleaved = model_.config.architecture->hf_gpt_oss;
    return {.head_dim = interleaved ? 1 : static_cast<int>(rows / 2),
            .halves = false,
            .per_group = 1,
            .stride = 2,
            .first = first};
  }

  // `order`: of the rows taken.
  Status Part(const TensorInfo& tensor, const std::string& module, const std::string& suffix,
              const HeadOrder& order) {
    if (suffix == ".blocks") return Packed(tensor, module, order);
    if (suffix == ".bias") {
      out_.push_back(PickedTensor(model_, {.name = module + suffix,
                                           .stored = tensor,
                                           .first = order.first,
                                           .step = order.stride,
                                           .cols = tensor.cols / order.stride}));
      return OkStatus();
    }
    out_.push_back(TurnedTensor(model_, {.name = module + suffix,
                                         .stored = tensor,
                                         .matrices = tensor.slabs,
                                         .first_row = 0,
                                         .cols = tensor.rows / tensor.slabs,
                                         .order = order,
                                         .rows = tensor.cols / order.stride}));
    return OkStatus();
  }

  Status Packed(const TensorInfo& blocks, const std::string& module, const HeadOrder& order) {
    std::string name = blocks.name;
    name.replace(name.rfind(".blocks"), 7, ".scales");
    const TensorInfo* scales = model_.Find(name);
    if (scales == nullptr)
      return base::InvalidArgument("tensor '", name, "' is missing: it scales '", blocks.name, "'");
    const std::int64_t cols = blocks.cols * kNibblesPerByte;
    if (scales->rows != blocks.rows || scales->cols * kValuesPerScale != cols ||
        scales->type != blocks.type)
      return base::InvalidArgument("tensors '", blocks.name, "' [", blocks.rows, ", ", blocks.cols,
                                   "] and '", name, "' [", scales->rows, ", ", scales->cols,
                                   "] are no MXFP4");
    out_.push_back(MxfpTensor(model_, {.name = module + ".weight",
                                       .file = blocks.file,
                                       .blocks = blocks.offset,
                                       .scales = scales->offset,
                                       .scales_file = scales->file,
                                       .slabs = blocks.slabs,
                                       .rows = blocks.rows / order.stride,
                                       .cols = cols,
                                       .order = order}));
    return OkStatus();
  }

  ModelFile& model_;
  std::vector<TensorInfo> out_;
};

}  // namespace

Status UnpackExperts(ModelFile& model) { return Unpacker(model).Run(); }

}  // namespace thermocline::model
