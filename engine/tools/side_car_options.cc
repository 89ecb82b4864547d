#include "engine/tools/side_car_options.h"

#include "engine/base/file.h"
#include "engine/predictor/identity.h"

namespace thermocline::tools {

void AddSideCarOption(CLI::App& app, std::string& path) {
  app.add_option("--side-car", path, "Side-car file to write; what else is in it stays. MODEL.tcp");
}

Result<OpenSideCar> OpenSideCarOf(const exec::LoadedModel& model, const std::string& path) {
  ASSIGN_OR_RETURN(const auto file, model::OpenModelFile(model.path));
  ASSIGN_OR_RETURN(const predictor::SideCarIdentity identity, predictor::IdentityOf(*file));
  OpenSideCar open{.path = path.empty() ? predictor::SideCarPath(model.path) : path, .content = {}};
  ASSIGN_OR_RETURN(open.content, predictor::ReadSideCarOrEmpty(open.path, identity));
  // Created and removed again.
  auto writable = base::FileWriter::Create(open.path);
  if (!writable.ok()) return writable.status().Annotate("--side-car");
  return open;
}

}  // namespace thermocline::tools
