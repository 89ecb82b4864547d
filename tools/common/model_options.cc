#include "tools/common/model_options.h"

#include "tools/common/console.h"

namespace thermocline::tools {
namespace {

// True if a value is not the one that means "not given", which the help text explains.
struct SaysMore {
  bool operator()(const IntValue& value) const { return *value.target != 0; }
  bool operator()(const DoubleValue& value) const { return *value.target != 0; }
  bool operator()(const TextValue& value) const { return !value.target->empty(); }
  bool operator()(const ChoiceValue& value) const { return !value.name().empty(); }
  template <typename Other>
  bool operator()(const Other&) const {
    return false;
  }
};

}  // namespace

void AddOptions(const OptionSet& set, OptionGroup group, ModelOptions& options) {
  for (const ModelOption& option : OptionsOf(options)) {
    const std::string names = option.flag;
    if (option.group != group || names.empty()) continue;
    const bool positional = names.find('-') == std::string::npos;
    const OptionSet under = positional || option.everyday ? set : set.Under(HeadingOf(group));
    const OptionRef added = under.Add(names, option.value, option.help);
    if (positional) added.Required();
    // The default of the drafting mode depends on other options, so it is not shown.
    if (group != OptionGroup::kSpec && std::visit(SaysMore(), option.value)) added.ShowDefault();
  }
}

void AddModelOptions(const OptionSet& set, ModelOptions& options) {
  AddOptions(set, OptionGroup::kModel, options);
}

void AddDecodeOptions(const OptionSet& set, ModelOptions& options) {
  AddOptions(set, OptionGroup::kFfn, options);
  AddOptions(set, OptionGroup::kMemory, options);
}

void AddMeasurementOptions(const OptionSet& set, ModelOptions& options) {
  AddOptions(set, OptionGroup::kTrace, options);
  AddOptions(set, OptionGroup::kAblation, options);
}

void AddSpecOptions(const OptionSet& set, ModelOptions& options) {
  AddOptions(set, OptionGroup::kDraft, options);
  AddOptions(set, OptionGroup::kSpec, options);
  set.OnParsed([set, &options] {
    const bool drafts = set.Find("--draft").given() || set.Find("--spec-source").given();
    if (drafts && !set.Find("--spec").given()) options.spec.mode = SpecMode::kAuto;
  });
}

ModelOptions WithMode(ModelOptions options, FfnMode mode) {
  options.ffn.modes = FfnModeName(mode);
  return options;
}

Result<std::unique_ptr<load::LoadedModel>> LoadWithProgress(const ModelOptions& options,
                                                            const load::WorkSizes& sizes) {
  ProgressBar bar("loading");
  auto model = load::LoadModel({.model = options, .sizes = sizes, .on_progress = bar.callback()});
  bar.Clear();
  if (model.ok() && (*model)->config.architecture->encoder)
    return base::FailedPrecondition((*model)->path,
                                    ": an encoder, which makes vectors of texts and writes none: "
                                    "serve it (thermocline serve), and ask /v1/embeddings");
  return model;
}

}  // namespace thermocline::tools
