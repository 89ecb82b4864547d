#include "engine/sched/stop_matcher.h"

#include <algorithm>

namespace thermocline::sched {
namespace {

// Length of the longest end of `text` that begins `stop`.
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
  for (const std::string& stop : stops_) {
    first = std::min(first, held_.find(stop));
    keep = std::max(keep, OverlapLength(held_, stop));
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
