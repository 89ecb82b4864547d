#include "engine/predictor/identity.h"

#include "engine/model/fingerprint.h"

namespace thermocline::predictor {

Result<SideCarIdentity> IdentityOf(const model::ModelFile& file) {
  ASSIGN_OR_RETURN(std::string hash, model::Fingerprint(file));
  return SideCarIdentity{.model_hash = std::move(hash),
                         .hidden_size = file.config.hidden_size,
                         .intermediate_size = file.config.units_per_layer(),
                         .num_hidden_layers = file.config.num_hidden_layers};
}

}  // namespace thermocline::predictor
