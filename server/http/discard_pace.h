// The pace at which bodies are thrown away that were refused, of all connections together.
#pragma once

#include <chrono>
#include <cstddef>

namespace thermocline::http {

// A client that sends on gets its answer only if its bytes are read; but they cost what streams
// need: 600 MB/s of refused bodies took a third of two processors.
inline constexpr double kDiscardBytesPerSecond = 64 << 20;

// Counts `bytes` that were thrown away, and returns how long to wait before more are read.
// Thread-safe.
std::chrono::steady_clock::duration WaitToDiscard(std::size_t bytes);

}  // namespace thermocline::http
