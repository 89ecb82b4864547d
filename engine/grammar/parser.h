// The state of a text in a grammar, byte by byte: all ways to parse it at once.
//
// An item is a state of the automaton and the frame of its rule. A frame is one use of a rule,
// entered at one place of the text: all items that enter the same rule there share it, so work
// stays polynomial for ambiguous and left-recursive grammars. A frame stores where to continue
// after its rule (links), which never change once the next byte is parsed; therefore undo just
// truncates the arrays. An item whose rule has nothing left passes its own links on instead of
// becoming one (tail calls): right recursion stays flat.
// Source: Earley 1970 and Tomita 1987 for shared stacks, Scott and Johnstone 2010 (GLL) for the
// order of work, Leo 1991 for right recursion.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/grammar/automaton.h"

namespace thermocline::grammar {

struct Item {
  int state, frame;
  bool operator==(const Item&) const = default;
};

// One thread at a time. Arrays grow with the text; Reserve allocates enough for a text of usual
// shape. Every item and link visited counts as work, and both work and arrays are bounded: a text
// with too many ways to parse it exhausts the parser, and exhausted() reports it. No way is dropped
// silently.
class Parser {
 public:
  // Maximum work of one mask or token: about 50 ms.
  static constexpr std::int64_t kWorkMax = 8'000'000;

  void Reserve(std::size_t places);
  static constexpr std::size_t kPlaceBytes = 32;  // bytes that Reserve allocates per place
  // Starts at the beginning of `automaton`, which must live as long.
  void Begin(const Automaton& automaton);
  // As Begin, at `state`, in a rule whose caller is unknown: its end is `left`.
  void BeginAt(const Automaton& automaton, int state);

  // A state to truncate back to.
  struct Mark {
    std::size_t items, frames, links;
  };
  Mark mark() const { return {items_.size(), frames_.size(), links_.size()}; }
  void CutTo(const Mark& mark);

  // A set of items is a range of the array.
  struct Set {
    std::size_t begin = 0, end = 0;
    bool empty() const { return begin == end; }
  };
  // The result of a step.
  struct Place {
    Set set;                // items that can consume input
    bool complete = false;  // the text can end here; with BeginAt, its rule can
  };
  Place start() const { return start_; }
  std::span<const Item> items(Set set) const {
    return std::span(items_).subspan(set.begin, set.end - set.begin);
  }
  // The place after `byte`, from the items of `set`; new items are appended to the array.
  Place Step(Set set, std::uint8_t byte);
  // The place after `token`, by the edges that name tokens.
  Place StepToken(Set set, int token);
  // Moves the array's last set down to `begin`, overwriting the items in between.
  Set MoveDown(Set set, std::size_t begin);

  // Copy appends items to the array one by one, and returns the set of items copied since
  // BeginCopy.
  Set BeginCopy() {
    set_begin_ = items_.size();
    return {set_begin_, set_begin_};
  }
  Set Copy(std::size_t item) {
    items_.push_back(Item(items_[item]));
    return {set_begin_, items_.size()};
  }

  // Items and links visited since the last ClearWork.
  std::int64_t work() const { return work_; }
  void ClearWork() {
    work_ = 0;
    exhausted_ = false;
  }
  // Counts work of the caller.
  void Work(std::int64_t count);
  // Returns true if more work than kWorkMax, or larger arrays than allowed, were needed since: the
  // places computed since may lack ways to parse the text.
  bool exhausted() const { return exhausted_; }

 private:
  static constexpr int kNone = -1, kRootFrame = 0;
  static constexpr std::size_t kEntriesMin = 1 << 16;
  static constexpr int kEdgesOfAnItem = 8;  // edges that are looked at in the time of an item
  struct Frame {
    int first_link;                 // kNone: no link, so its end is the end of the whole text
    std::uint32_t place, ended_at;  // where it was entered; where its rule last ended
  };
  struct Link {
    Item behind;
    int next;
  };
  static_assert(sizeof(Item) + sizeof(Frame) + sizeof(Link) == kPlaceBytes);
  // An entry of the current place, stored in a hash table once there are too many for a linear
  // search.
  struct Known {
    int kind, state, frame;  // kind: kItem, or the frame whose link it is
    std::uint32_t place = 0;
  };
  static constexpr int kItem = -1;
  static constexpr std::size_t kFew = 16;
  void NewPlace();
  bool IsNew(const Known& entry);
  bool HasItem(Item item);
  bool HasLink(int frame, int rule, Item behind);
  void Add(Item item);
  void Enter(const RuleEdge& edge, Item item);
  void AddLink(int frame, int rule, Item behind);
  void End(int frame);
  Place Close();

  const Automaton* automaton_ = nullptr;
  std::vector<Item> items_;
  std::vector<Frame> frames_;
  std::vector<Link> links_;
  std::vector<int> frame_of_;            // by rule, of the place in place_of_
  std::vector<std::size_t> links_of_;    // of that frame
  std::vector<std::uint32_t> place_of_;  // by rule
  std::uint32_t place_ = 0;
  std::size_t set_begin_ = 0;  // of the set under construction
  bool complete_ = false;
  Place start_;
  std::int64_t work_ = 0;
  bool exhausted_ = false;
  std::size_t entries_max_ = kEntriesMin;  // of each array
  std::vector<Known> known_;               // a hash table, of a power of two
  std::size_t known_count_ = 0;
};

}  // namespace thermocline::grammar
