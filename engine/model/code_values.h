// The numbers that the codes of packed weights stand for, and those of their scales.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "engine/base/status.h"

namespace thermocline::model {

// By the bits of a code. Source: the OCP 8-bit and MX formats.
using CodeValues = std::array<float, 256>;
const CodeValues& Fp8Values();             // E4M3
const CodeValues& Fp4Values();             // E2M1; the first 16
const CodeValues& Int8Values();            // two's complement
const CodeValues& OffsetValues(int bits);  // the code less half of all codes; bits: 4 or 8

// Bytes of a scale of a safetensors type: F32, F16, BF16, F8_E4M3, and F8_E8M0 or U8, which are
// powers of two; 0 for another type.
int ScaleBytes(const std::string& type);
// Converts out.size() scales. Requires: a type that ScaleBytes knows.
void ToFloats(const std::string& type, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace thermocline::model
