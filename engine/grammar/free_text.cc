#include "engine/grammar/free_text.h"

#include <array>
#include <cstdint>

#include "engine/base/index.h"

namespace thermocline::grammar {
namespace {

constexpr int kNoNode = -1;

// The stops as a trie in which every node has a transition for each byte.
class StopTrie {
 public:
  StopTrie() { AddNode(); }

  void Add(const std::string& stop) {
    int node = 0;
    for (const char c : stop) {
      const std::uint8_t byte = c;
      if (next_[node][byte] == kNoNode) {
        const int added = AddNode();
        next_[node][byte] = added;
      }
      node = next_[node][byte];
    }
    stop_[node] = true;
  }

  // If no stop continues, goes to the longest suffix of the text so far that begins a stop.
  void LinkFailures() {
    std::vector<int> failure(next_.size(), 0), order;
    for (int& to : next_[0]) {
      if (to == kNoNode) {
        to = 0;
      } else {
        order.push_back(to);
      }
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      const int node = order[i];
      stop_[node] = stop_[node] || stop_[failure[node]];
      for (int byte = 0; byte < 256; ++byte) {
        int& to = next_[node][byte];
        const int behind = next_[failure[node]][byte];
        if (to == kNoNode) {
          to = behind;
        } else {
          failure[to] = behind;
          order.push_back(to);
        }
      }
    }
  }

  // If no stop continues, none can occur any more.
  void LinkToAnything() {
    const int anything = AddNode();
    for (auto& node : next_)
      for (int& to : node)
        if (to == kNoNode) to = anything;
  }

  // Leaves out the nodes where a stop is complete.
  Dfa ToDfa() const {
    Dfa out;
    out.states.resize(next_.size());
    for (std::size_t node = 0; node < next_.size(); ++node) {
      Dfa::State& state = out.states[node];
      state.accepting = !stop_[node];
      for (int byte = 0; !stop_[node] && byte < 256; ++byte) {
        const int to = next_[node][byte];
        if (stop_[to]) continue;
        const auto b = static_cast<std::uint8_t>(byte);
        if (!state.bytes.empty() && state.bytes.back().to == to && state.bytes.back().hi + 1 == b)
          state.bytes.back().hi = b;
        else
          state.bytes.push_back({b, b, to});
      }
    }
    return out;
  }

  std::size_t size() const { return next_.size(); }

 private:
  int AddNode() {
    next_.emplace_back().fill(kNoNode);
    stop_.push_back(false);
    return base::IntSize(next_) - 1;
  }

  std::vector<std::array<int, 256>> next_;
  std::vector<bool> stop_;
};

}  // namespace

Result<Dfa> TextWithout(const std::vector<std::string>& stops, bool at_start, Budget& budget) {
  StopTrie trie;
  for (const std::string& stop : stops) {
    if (stop.empty()) return base::InvalidArgument("a text cannot be without the empty text");
    trie.Add(stop);
    RETURN_IF_ERROR(budget.Check(trie.size()));
  }
  if (at_start) {
    trie.LinkToAnything();
  } else {
    trie.LinkFailures();
  }
  return trie.ToDfa();
}

}  // namespace thermocline::grammar
