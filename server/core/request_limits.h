// Bounds on what one request may carry, whatever protocol it came by. Source: limits of hosted
// APIs, with room.
#pragma once

#include <cstddef>

#include "engine/api/ffn_mode.h"

namespace thermocline::server {

struct Range {
  double min, max;
};

inline constexpr Range kTemperatureRange = {0, 100};
inline constexpr Range kTopKRange = {0, 1'000'000};
inline constexpr Range kProbabilityRange = {0, 1};  // top_p, min_p, typical_p
inline constexpr Range kRepetitionPenaltyRange = {0.01, 100};
inline constexpr Range kPenaltyRange = {-2, 2};  // presence and frequency
inline constexpr Range kDryMultiplierRange = {0, 100};
inline constexpr Range kDryBaseRange = {1, 100};
inline constexpr Range kDryAllowedLengthRange = {1, 1'000'000};
inline constexpr Range kDryPenaltyLastNRange = {-1, 1'000'000};
inline constexpr Range kMinTokensRange = {0, 1'000'000};
inline constexpr Range kKlMaxRange = {0, kKlMaxMax};
inline constexpr Range kLogitBiasRange = {-100, 100};

inline constexpr std::size_t kStopsMax = 16;
inline constexpr std::size_t kStopBytesMax = 256;
inline constexpr std::size_t kStopTokensMax = 64;
inline constexpr std::size_t kDryBreakersMax = 16;
inline constexpr std::size_t kDryBreakerBytesMax = 64;
inline constexpr std::size_t kLogitBiasMax = 1024;
inline constexpr std::size_t kChoiceTextsMax = 1024;  // texts of which an answer must be one
inline constexpr std::size_t kChoiceBytesMax = 4096;
inline constexpr std::size_t kMessagesMax = 4096;
inline constexpr std::size_t kToolsMax = 256;
inline constexpr std::size_t kEmbeddedTextsMax = 2048;  // of one request
inline constexpr std::size_t kToolNameBytesMax = 128;
inline constexpr std::size_t kPiecesMax = 65'536;  // tokens that are told with their bytes
inline constexpr std::size_t kFfnModeBytesMax = 1024;
inline constexpr std::size_t kSpecModeBytesMax = 64;  // of one that is no mode, in its refusal
inline constexpr std::size_t kRequestIdBytesMax = 128;
inline constexpr int kChoicesPerPromptMax = 8;
inline constexpr double kTimeoutMax = 86'400;  // seconds

}  // namespace thermocline::server
