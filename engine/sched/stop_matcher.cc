#include "engine/sched/stop_matcher.h"

#include <algorithm>

#include "engine/base/index.h"

namespace thermocline::sched {
namespace {

// Returns the length of the longest suffix of `text` that is a prefix of `stop`.
std::size_t OverlapLength(std::string_view text, std::string_view stop) {
  for (std::size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

bool StopMatcher::Push(std::string_view text, std::string& out) {
  held_ += text;
  std::size_t first = std::string::npos;
  std::size_t keep = 0;
  for (int i = 0; i < base::IntSize(stops_); ++i) {
    const std::size_t at = held_.find(stops_[i]);
    if (at < first) {
      first = at;
      found_ = i;
    }
    keep = std::max(keep, OverlapLength(held_, stops_[i]));
  }
  if (first != std::string::npos) {
    out.append(held_, 0, first);
    held_.clear();
    return true;
  }
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

}  // namespace thermocline::sched
