// Shared parts of tests of a target that drafts for itself while it verifies.
#pragma once

#include <string>
#include <vector>

#include "engine/api/speculation.h"

namespace thermocline::spec {

inline const std::string kTidepool = SOURCE_DIR "/config/models/tidepool.gguf";

inline SpecOptions Self(SpecMode mode) {
  SpecOptions spec;
  spec.mode = mode;
  spec.source = SpecSource::kSelf;
  return spec;
}

inline std::vector<int> Sequence(int count) {
  std::vector<int> out = {1};
  for (int i = 1; i < count; ++i) out.push_back(300 + i * 37 % 1500);
  return out;
}

}  // namespace thermocline::spec
