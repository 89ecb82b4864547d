// Products, norms and additions with a model's matrices, enqueued on its device's stream.
#pragma once

#include "engine/gpu/device_activations.h"
#include "engine/gpu/device_model.h"

namespace thermocline::gpu {

// Decode thread only. Borrows the model and owns no memory, so it can be copied. All errors are
// Unavailable with the device's text.
class DeviceDense {
 public:
  explicit DeviceDense(const DeviceModel& model) : model_(model) {}

  // out [T, D] = norm(x [T, D]), with its Q8 form.
  Status Norm(const model::NormWeights& norm, const float* x, int tokens,
              const kernels::DeviceActivations& out) const;
  // out [T, rows] = matrix x + bias, or += if `accumulate`.
  Status Multiply(const model::Linear& matrix, const kernels::DeviceActivations& x, int tokens,
                  float* out, bool accumulate = false) const;
  // As Multiply for a quantised matrix at 16 bits of precision: x [2 T, cols] becomes its Q8 form
  // followed by the Q8 form of the rounding errors. out [2 T, rows]: the first T rows are the
  // result.
  Status MultiplyPrecisely(const model::Linear& matrix, const kernels::DeviceActivations& x,
                           int tokens, float* out) const;
  // x [T, D] += y [T, D].
  Status Add(float* x, const float* y, int tokens) const;
  Status Check(kernels::DeviceError error, const char* what) const {
    return error == 0 ? OkStatus() : model_.device().Check(error, what);
  }

 private:
  const DeviceModel& model_;
};

}  // namespace thermocline::gpu
