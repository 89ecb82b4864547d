// Limits on the contents of one request, in every protocol. Source: limits of hosted APIs, with
// room.
#pragma once

#include <cstddef>

#include "engine/api/ffn_mode.h"
#include "engine/api/sampling_table.h"

namespace thermocline::server {

inline constexpr Range kKlMaxRange = {0, kKlMaxMax};
inline constexpr Range kLogitBiasRange = {-100, 100};

inline constexpr std::size_t kStopsMax = 16;
inline constexpr std::size_t kStopBytesMax = 256;
inline constexpr std::size_t kStopTokensMax = 64;
inline constexpr std::size_t kDryBreakersMax = 16;
inline constexpr std::size_t kDryBreakerBytesMax = 64;
inline constexpr std::size_t kLogitBiasMax = 1024;
inline constexpr std::size_t kChoiceTextsMax = 1024;  // allowed answers in a request's list of them
inline constexpr std::size_t kChoiceBytesMax = 4096;
inline constexpr std::size_t kMessagesMax = 4096;
inline constexpr std::size_t kToolsMax = 256;
inline constexpr std::size_t kEmbeddedTextsMax = 2048;  // per request
inline constexpr std::size_t kToolNameBytesMax = 128;
inline constexpr std::size_t kPiecesMax = 65'536;  // tokens listed with their bytes
inline constexpr std::size_t kFfnModeBytesMax = 1024;
inline constexpr std::size_t kReasoningMessageBytesMax = 1024;
inline constexpr std::size_t kRequestIdBytesMax = 128;
inline constexpr int kChoicesPerPromptMax = 8;
inline constexpr double kTimeoutMax = 86'400;  // seconds

}  // namespace thermocline::server
