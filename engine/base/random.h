// Random numbers and names from the system's own source.
#pragma once

#include <cstdint>
#include <string>

namespace thermocline::base {

// Unpredictable. Throws std::exception where the system has no random numbers. Takes about a
// microsecond.
std::uint64_t RandomBits64();

// `count` letters and digits, each as likely as the others.
std::string RandomLetters(int count);

}  // namespace thermocline::base
