// `thermocline convert`: converts any supported model to GGUF.
#include <cstdio>
#include <filesystem>
#include <map>

#include "engine/base/log.h"
#include "engine/base/output_file.h"
#include "engine/base/system_memory.h"
#include "engine/load/input_setup.h"
#include "engine/load/loaded_model.h"
#include "engine/model/expert_rows.h"
#include "engine/model/gguf/importance.h"
#include "engine/model/gguf/plan.h"
#include "engine/model/gguf/writer.h"
#include "engine/model/open/builtin.h"
#include "engine/model/open/open_model.h"
#include "engine/model/weights/input_major.h"
#include "engine/model/weights/weights.h"
#include "tools/common/command_line.h"
#include "tools/common/console.h"
#include "tools/common/model_output.h"

namespace thermocline::tools {
namespace {

struct Options {
  std::string in, out, type, name, imatrix, down = "auto", layout = "file";
  bool json = false, overwrite = false;
};

const std::map<std::string, model::DownLayout> kLayouts = {
    {"auto", model::DownLayout::kAuto},
    {"columns", model::DownLayout::kColumns},
    {"rows", model::DownLayout::kRows},
};

// Checks that the importance matrix covers the model and most of its matrices.
Status CheckImportance(const model::ModelFile& file, const model::Importance& importance) {
  int known = 0, all = 0;
  for (const model::TensorInfo& tensor : file.tensors) {
    if (tensor.name.ends_with(model::kInputMajorSuffix)) continue;
    if (tensor.num_dims < 2 || !tensor.name.starts_with("blk.") || model::StaysFloat(tensor.name))
      continue;
    const bool turned = tensor.name.ends_with(".ffn_down_t.weight");
    std::string name = tensor.name;
    if (turned) name.erase(name.size() - std::string_view("_t.weight").size(), 2);
    ASSIGN_OR_RETURN(const auto means,
                     importance.Of(name, static_cast<int>(tensor.slabs),
                                   static_cast<int>(turned ? tensor.rows : tensor.cols)));
    ++all;
    known += means.empty() ? 0 : 1;
  }
  if (known == 0)
    return base::InvalidArgument("knows none of the model's tensors: it is another model's");
  if (known < all)
    base::LogWarning("the importance matrix knows ", known, " of ", all,
                     " matrices of layers; the others are rounded without it");
  return OkStatus();
}

// Checks that the output replaces no input: neither a file of the model, which may have several,
// nor the importance matrix.
Status CheckNoInput(const Options& options, const model::ModelFile& model) {
  bool input = base::IsSameFile(options.out, options.imatrix);
  for (const auto& file : model.files) input = input || base::IsSameFile(options.out, file->path());
  if (!input) return OkStatus();
  return base::InvalidArgument(options.out, ": is the input; choose another name");
}

Status Convert(const Options& options) {
  ASSIGN_OR_RETURN(const std::string in, model::ResolveModel(options.in));
  const std::string name =
      options.name.empty() ? std::filesystem::path(in).stem().string() : options.name;
  ASSIGN_OR_RETURN(const auto file, model::OpenModelFile(in));
  RETURN_IF_ERROR(CheckNoInput(options, *file));
  RETURN_IF_ERROR(CheckModelOutput(options.out, name, options.overwrite));
  if (file->config.experts.any() && options.down != "auto")
    RETURN_IF_ERROR(
        model::TurnExpertsDown(*file, options.down == "rows").Annotate("--down " + options.down));
  if (options.layout == "inputs")
    RETURN_IF_ERROR(load::CanCutInputs(file->config).Annotate("--layout inputs"));
  model::Importance importance;
  if (!options.imatrix.empty()) {
    if (options.type.empty())
      return base::InvalidArgument(
          "--imatrix: weights that stay as stored are not rounded; give "
          "--quantize");
    ASSIGN_OR_RETURN(importance, model::Importance::Read(options.imatrix));
    RETURN_IF_ERROR(CheckImportance(*file, importance).Annotate(options.imatrix));
  }
  // A model that no command could load is not written.
  RETURN_IF_ERROR(model::MeasureWeights(*file, {}).status());
  ProgressBar bar("converting");
  RETURN_IF_ERROR(model::WriteGguf(
      *file, options.out,
      {.type = model::TypeByName(options.type),
       // The copies are made of columns.
       .down = options.layout == "inputs" && options.down == "auto" ? model::DownLayout::kColumns
                                                                    : kLayouts.at(options.down),
       .input_major = options.layout == "inputs",
       .importance = options.imatrix.empty() ? nullptr : &importance,
       .name = name,
       .threads = base::UsableProcessors(),
       .on_progress = bar.callback()}));
  bar.Clear();
  ASSIGN_OR_RETURN(const auto written, model::OpenModelFile(options.out));
  std::error_code error;
  const std::int64_t bytes = std::filesystem::file_size(options.out, error);
  if (options.json) {
    PrintJson(Json::Object{{"out", options.out},
                           {"type", options.type.empty() ? "as stored" : options.type},
                           {"bytes", bytes},
                           {"tensors", written->tensors.size()}});
  } else {
    std::printf("%s: %zu tensors, %s\n", options.out.c_str(), written->tensors.size(),
                base::HumanBytes(bytes).c_str());
  }
  return OkStatus();
}

}  // namespace

Command AddConvert(const OptionSet& set) {
  auto options = std::make_shared<Options>();
  set.Add("in", options->in, "Model file or folder").Required();
  set.Add("out", options->out, "GGUF file to write").Required();
  set.Add("--quantize", TextValue{&options->type, model::QuantizableTypes()},
          "Type of the matrices; as stored if not given. Embedding and head stay finer: q8_0, "
          "or q6_k under a K type");
  set.Add("--down", TextValue{&options->down, {"auto", "columns", "rows"}},
          "Neurons of the down projection: along the columns as usual, or along the rows "
          "(ffn_down_t; only Thermocline and PowerInfer read it), so that a neuron that is "
          "zero for a token is not read. auto: rows if the activation has true zeros and "
          "the weights are rewritten anyway. Rows are f32, f16, bf16, q8_0, q4_0, q4_1, "
          "q4_k or tq2_0; q8_0 under the other types")
      .ShowDefault();
  set.Add("--layout", TextValue{&options->layout, {"file", "inputs"}},
          "inputs: the layers' matrices a second time, input-major, so that mode 'inputs' need not "
          "turn them at every load, and they are rounded once (only Thermocline reads such a file)")
      .ShowDefault();
  set.Add("--imatrix", options->imatrix,
          "Importance of the matrices' columns, by `imatrix` or llama.cpp: those that matter are "
          "rounded with less error (with --quantize)");
  set.Add("--name", options->name, "general.name in the file");
  AddOverwriteOption(set, options->overwrite);
  set.Add("--json", options->json, "One JSON object on standard output");
  return [options] { return Convert(*options); };
}

}  // namespace thermocline::tools
