#pragma once

#include <vector>

#include "engine/api/ffn_mode.h"

namespace thermocline::load {

// The modes in which the decoded tokens of a request are computed.
struct RequestModes {
  std::vector<FfnMode> layers;       // [L]
  int input_point = -1;              // as FfnPolicy
  std::vector<float> adapters = {};  // as Request::adapter_scales; empty: none is applied

  bool operator==(const RequestModes&) const = default;
};

}  // namespace thermocline::load
