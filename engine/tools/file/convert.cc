// `thermocline convert`: any model we read, as GGUF.
#include <cstdio>
#include <filesystem>
#include <map>

#include "engine/load/loaded_model.h"
#include "engine/model/builtin.h"
#include "engine/model/expert_rows.h"
#include "engine/model/gguf_writer.h"
#include "engine/model/weights.h"
#include "engine/tools/common/command_line.h"
#include "engine/tools/common/console.h"

namespace thermocline::tools {
namespace {

struct Options {
  std::string in, out, type, name, down = "auto";
  bool json = false;
};

const std::map<std::string, model::DownLayout> kLayouts = {
    {"auto", model::DownLayout::kAuto},
    {"columns", model::DownLayout::kColumns},
    {"rows", model::DownLayout::kRows},
};

Status Convert(const Options& options) {
  ASSIGN_OR_RETURN(const std::string in, model::ResolveModel(options.in));
  std::error_code error;
  if (std::filesystem::equivalent(in, options.out, error))
    return base::InvalidArgument(options.out, ": is the input; choose another name");
  ASSIGN_OR_RETURN(const auto file, model::OpenModelFile(in));
  if (file->config.experts.any() && options.down != "auto")
    RETURN_IF_ERROR(
        model::TurnExpertsDown(*file, options.down == "rows").Annotate("--down " + options.down));
  // What no command could load is not written.
  RETURN_IF_ERROR(model::MeasureWeights(*file, {}).status());
  ProgressBar bar("converting");
  const std::string stem = std::filesystem::path(in).stem().string();
  RETURN_IF_ERROR(model::WriteGguf(*file, options.out,
                                   {.type = model::TypeByName(options.type),
                                    .down = kLayouts.at(options.down),
                                    .name = options.name.empty() ? stem : options.name,
                                    .threads = load::NumProcessors(),
                                    .on_progress = bar.callback()}));
  bar.Clear();
  const std::int64_t bytes = std::filesystem::file_size(options.out, error);
  if (options.json) {
    PrintJson(Json::Object{{"out", options.out},
                           {"type", options.type.empty() ? "as stored" : options.type},
                           {"bytes", bytes},
                           {"tensors", file->tensors.size()}});
  } else {
    std::printf("%s: %zu tensors, %s\n", options.out.c_str(), file->tensors.size(),
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
          "the weights are rewritten anyway. Rows are f32, f16, bf16, q8_0, q4_0, q4_1 or "
          "q4_k; q8_0 under the other types")
      .ShowDefault();
  set.Add("--name", options->name, "general.name in the file");
  set.Add("--json", options->json, "One JSON object on standard output");
  return [options] { return Convert(*options); };
}

}  // namespace thermocline::tools
