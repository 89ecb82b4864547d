// The vocabulary of synthetic models.
#pragma once

#include "engine/model/vocabulary.h"

namespace thermocline::tools {

// Control tokens, the 256 bytes, and words "w0", "w1", ...: `size` of them, at least 260.
model::Vocabulary MakeVocabulary(int size);

}  // namespace thermocline::tools
