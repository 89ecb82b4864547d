// Random numbers and names from the system's own source.
#pragma once

#include <cstdint>
#include <string>

namespace thermocline::base {

// Unpredictable bits. Throws std::exception if the system has no random numbers. Takes about a
// microsecond.
std::uint64_t RandomBits64();

// `count` letters and digits, uniformly distributed.
std::string RandomLetters(int count);

}  // namespace thermocline::base
