// The interface of audits to a side that has neurons of a layer: which ones a policy predicts for
// one token, and which are active without any prediction.
#pragma once

#include <span>

#include "engine/base/status.h"
#include "engine/ffn/ffn_step.h"
#include "engine/ffn/live_neurons.h"

namespace thermocline::ffn {

// Decode thread only, between steps. Nothing is counted.
class AuditedSide {
 public:
  virtual ~AuditedSide() = default;

  // Neurons of a layer that are here, and that an audit must ask for.
  virtual int num_neurons(int layer) const = 0;

  // Ascending ids of one token; valid until the next call.
  struct Look {
    std::span<const int> predicted;
    FoundNeurons active;
  };
  // Requires of all: one token; a policy that predicts. Errors: the flash tier's, or Unavailable
  // with the device's; then the side is as if it had not been asked.
  //
  // Begins what LookAt will be asked, where that can go on beside other work; returns at once.
  virtual Status Start(int /*layer*/, const FfnInput& /*input*/, const FfnPolicy& /*policy*/) {
    return OkStatus();
  }
  virtual Result<Look> LookAt(int layer, const FfnInput& input, const FfnPolicy& policy) = 0;
  // The prediction alone; leaves a Look's `active` valid.
  virtual Result<std::span<const int>> PredictedBy(int layer, const FfnInput& input,
                                                   const FfnPolicy& policy) = 0;
};

}  // namespace thermocline::ffn
