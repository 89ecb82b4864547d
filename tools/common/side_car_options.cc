#include "tools/common/side_car_options.h"

#include <numeric>

#include "engine/base/output_file.h"
#include "engine/model/open/open_model.h"
#include "engine/predictor/identity.h"

namespace thermocline::tools {

void AddSideCarOption(const OptionSet& set, std::string& path) {
  set.Add("--side-car", path, "Side-car file to write; what else is in it stays. MODEL.tcp");
}

namespace {

void CopyPart(SideCarPart part, const predictor::LayerSideCar& from, predictor::LayerSideCar& to) {
  switch (part) {
    case SideCarPart::kProfile:
      to.activations = from.activations;
      to.down_norms = from.down_norms;
      return;
    case SideCarPart::kSign:
      to.sign = from.sign;
      to.alpha = from.alpha;
      to.down_norms = from.down_norms;
      return;
    case SideCarPart::kThreshold:
      to.threshold = from.threshold;
      to.threshold_kept_mass = from.threshold_kept_mass;
      return;
    case SideCarPart::kLowRank:
      to.low_rank = from.low_rank;
      return;
    case SideCarPart::kInputs:
      to.inputs = from.inputs;
      return;
  }
}

}  // namespace

Status OpenSideCar::Write(std::span<const int> layers) {
  // Held until the new file has its name.
  ASSIGN_OR_RETURN(const auto lock, base::FolderLock::Of(path));
  ASSIGN_OR_RETURN(predictor::SideCar now, predictor::ReadSideCarOrEmpty(path, identity));
  for (const int layer : layers) {
    const std::size_t at = layer;
    CopyPart(part, content.layers[at], now.layers[at]);
  }
  if (part == SideCarPart::kProfile) now.profiled_tokens = content.profiled_tokens;
  if (part == SideCarPart::kInputs) now.input_points = content.input_points;
  RETURN_IF_ERROR(predictor::WriteSideCar(path, now));
  content = std::move(now);
  return OkStatus();
}

Status OpenSideCar::WriteAll() {
  std::vector<int> all(content.layers.size());
  std::iota(all.begin(), all.end(), 0);
  return Write(all);
}

Result<OpenSideCar> OpenSideCarOf(const load::LoadedModel& model, const std::string& path,
                                  SideCarPart part) {
  ASSIGN_OR_RETURN(const auto file, model::OpenModelFile(model.path));
  ASSIGN_OR_RETURN(predictor::SideCarIdentity identity, predictor::IdentityOf(*file));
  OpenSideCar open{.path = path.empty() ? predictor::SideCarPath(model.path) : path,
                   .part = part,
                   .identity = std::move(identity),
                   .content = {}};
  ASSIGN_OR_RETURN(open.content, predictor::ReadSideCarOrEmpty(open.path, open.identity));
  // Created and removed again, as a test.
  auto writable = base::FileWriter::Create(open.path);
  if (!writable.ok()) return writable.status().Annotate("--side-car");
  return open;
}

Status CheckPlotPath(const std::string& path) {
  if (path.empty()) return OkStatus();
  if (!path.ends_with(".svg"))
    return base::InvalidArgument("--plot ", path,
                                 ": the picture is an SVG; give a name ending in .svg");
  const auto is_svg = [](const base::File& file) {
    return base::BeginOf(file, 1024).find("<svg") != std::string::npos;  // it may follow <?xml
  };
  return base::CheckReplaceable(path, {"an SVG picture", is_svg}).Annotate("--plot");
}

}  // namespace thermocline::tools
