#include "engine/api/request.h"

namespace thermocline {

const char* FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      break;
  }
  return "error";
}

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kQueued:
      return "queued";
    case Phase::kPrefill:
      return "prefill";
    case Phase::kDecode:
      break;
  }
  return "decode";
}

const char* CancelCauseName(CancelCause cause) {
  switch (cause) {
    case CancelCause::kNone:
      return "none";
    case CancelCause::kDisconnect:
      return "disconnect";
    case CancelCause::kDeadline:
      return "deadline";
    case CancelCause::kApi:
      return "api";
    case CancelCause::kShutdown:
      return "shutdown";
    case CancelCause::kSlowReader:
      return "slow_reader";
    case CancelCause::kOtherChoice:
      break;
  }
  return "other_choice";
}

const char* PoolingName(Pooling pooling) {
  switch (pooling) {
    case Pooling::kFirst:
      return "cls";
    case Pooling::kLast:
      return "last";
    case Pooling::kRank:
      return "rank";
    case Pooling::kMean:
      break;
  }
  return "mean";
}

std::optional<Pooling> ParsePooling(std::string_view name) {
  for (const Pooling pooling : {Pooling::kMean, Pooling::kFirst, Pooling::kLast})
    if (name == PoolingName(pooling)) return pooling;
  return std::nullopt;
}

}  // namespace thermocline
