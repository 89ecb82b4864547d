#include "engine/text/contains_any.h"

#include "engine/base/bytes.h"

namespace thermocline::text {

ContainsAny::ContainsAny(const std::vector<std::string>& strings) : next_(1), found_(1) {
  for (const std::string& string : strings)
    if (!string.empty()) Add(string);
  Link();
}

bool ContainsAny::operator()(std::string_view text) const {
  State state = 0;
  for (const char c : text) {
    state = next_[state][base::ByteOf(c)];
    if (found_[state]) return true;
  }
  return false;
}

void ContainsAny::Add(std::string_view string) {
  State state = 0;
  for (const char c : string) {
    if (next_[state][base::ByteOf(c)] == 0) {
      next_[state][base::ByteOf(c)] = static_cast<State>(next_.size());
      next_.emplace_back();
      found_.push_back(false);
    }
    state = next_[state][base::ByteOf(c)];
  }
  found_[state] = true;
}

// Shorter prefixes first: a state without an edge for a byte takes that of its longest proper
// suffix that is a prefix of a string.
void ContainsAny::Link() {
  std::vector<State> shorter(next_.size()), order = {0};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const State state = order[i];
    for (std::size_t byte = 0; byte < next_[state].size(); ++byte) {
      State& next = next_[state][byte];
      const State fallback = state == 0 ? State{0} : next_[shorter[state]][byte];
      if (next == 0) {
        next = fallback;
        continue;
      }
      shorter[next] = fallback;
      if (found_[fallback]) found_[next] = true;
      order.push_back(next);
    }
  }
}

}  // namespace thermocline::text
