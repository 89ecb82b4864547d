// The code that is made for each type that devices have kernels for.
#pragma once

#include "kernels/device_ops.h"
#include "kernels/rows.h"

namespace thermocline::kernels::THERMOCLINE_CUDA {

// Calls body(std::integral_constant<DType, type>()) for the quantised types.
template <typename Body>
DeviceError ForQuantizedType(DType type, const Body& body) {
  return ForDType(type, [&](auto constant) -> DeviceError {
    if constexpr (HasDeviceKernels(decltype(constant)::value) &&
                  Traits(decltype(constant)::value).quantized) {
      return body(constant);
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

// The same for the quantised types that CanSumRows.
template <typename Body>
DeviceError ForSummableType(DType type, const Body& body) {
  return ForDType(type, [&](auto constant) -> DeviceError {
    if constexpr (HasDeviceKernels(decltype(constant)::value) &&
                  Traits(decltype(constant)::value).quantized &&
                  CanSumRows(decltype(constant)::value)) {
      return body(constant);
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

}  // namespace thermocline::kernels::THERMOCLINE_CUDA
