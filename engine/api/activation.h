// The activation functions of feed-forward networks.
#pragma once

#include <array>
#include <string_view>

#include "engine/base/index.h"

namespace thermocline {

enum class Activation {
  kSilu,
  kRelu,
  kFatRelu,
  kDRelu,
  kRelu2,
  kGelu,
  kGeluTanh,
  kClampedSwiglu,
  kXielu
};
inline constexpr std::array<std::string_view, 9> kActivationNames = {
    "silu", "relu", "fatrelu", "drelu", "relu2", "gelu", "gelu_tanh", "clamped_swiglu", "xielu"};

inline std::string_view ActivationName(Activation activation) {
  return kActivationNames[base::Index(activation)];
}

}  // namespace thermocline
