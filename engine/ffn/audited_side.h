// The interface of audits to a side that has neurons of a layer: the neurons that a policy predicts
// for one token, and the neurons that are active without prediction.
#pragma once

#include <span>

#include "engine/base/status.h"
#include "engine/ffn/ffn_step.h"
#include "engine/ffn/live_neurons.h"

namespace thermocline::ffn {

// Decode thread only, between steps. The calls do not change counters.
class AuditedSide {
 public:
  virtual ~AuditedSide() = default;

  // Number of the layer's neurons on this side; audits query it only if it is not 0.
  virtual int num_neurons(int layer) const = 0;

  // Ascending ids for one token; valid until the next call.
  struct Activity {
    std::span<const int> predicted;
    FoundNeurons active;
  };
  // All functions require one token and a policy that predicts. Errors: the flash tier's, or
  // Unavailable with the device's; then the side is in the same state as before the call.
  //
  // Starts the work of the next ExactActivity with the same arguments, if it can run in the
  // background; returns at once.
  virtual Status Start(int /*layer*/, const FfnInput& /*input*/, const FfnPolicy& /*policy*/) {
    return OkStatus();
  }
  virtual Result<Activity> ExactActivity(int layer, const FfnInput& input,
                                         const FfnPolicy& policy) = 0;
  // The prediction alone; keeps an Activity's `active` valid.
  virtual Result<std::span<const int>> PredictedBy(int layer, const FfnInput& input,
                                                   const FfnPolicy& policy) = 0;
};

}  // namespace thermocline::ffn
