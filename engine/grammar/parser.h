// The state of a text in a grammar, byte by byte: every way to read it at once.
//
// An item is a state of the automaton and the frame of the rule it stands in. A frame is one use of
// a rule, entered at one place of the text: whatever enters the same rule there shares it, so work
// stays polynomial for ambiguous and left-recursive grammars. A frame knows where to go on behind
// its rule (links), which never change once the next byte is read; therefore going back is cutting
// arrays. An item whose rule has nothing left hands its own links on instead of becoming one
// (tail calls): right recursion stays flat.
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

// One thread at a time. Arrays grow with the text; Reserve takes what a text of usual shape needs.
// Every item and link that is looked at is work, and both work and arrays have a bound: a text with
// more ways to read it exhausts the parser, which then says so. No way is lost in silence.
class Parser {
 public:
  // Work of one mask or token at most: about 50 ms.
  static constexpr std::int64_t kWorkMax = 8'000'000;

  void Reserve(std::size_t places);
  static constexpr std::size_t kPlaceBytes = 32;  // that Reserve takes of each
  // Stands at the start of `automaton`, which must live as long.
  void Begin(const Automaton& automaton);
  // As Begin, at `state`, in a rule of which is not known who entered it: its end is `left`.
  void BeginAt(const Automaton& automaton, int state);

  // A state to cut back to.
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
  // The outcome of a step.
  struct Place {
    Set set;                // items that can consume something
    bool complete = false;  // the text can end here; of BeginAt: its rule can
  };
  Place start() const { return start_; }
  std::span<const Item> items(Set set) const {
    return std::span(items_).subspan(set.begin, set.end - set.begin);
  }
  // Behind `byte`, from the items of `set`; the new ones come at the array's end.
  Place Step(Set set, std::uint8_t byte);
  // Behind `token`, by the edges that name tokens.
  Place StepToken(Set set, int token);
  // Moves the array's last set down to `begin`: what lies between is not needed any more.
  Set MoveDown(Set set, std::size_t begin);

  // Copies items to the array's end, one by one; the set of those copied since BeginCopy.
  Set BeginCopy() {
    set_begin_ = items_.size();
    return {set_begin_, set_begin_};
  }
  Set Copy(std::size_t item) {
    items_.push_back(Item(items_[item]));
    return {set_begin_, items_.size()};
  }

  // Items and links looked at since it was set to 0.
  std::int64_t work() const { return work_; }
  void ClearWork() {
    work_ = 0;
    exhausted_ = false;
  }
  // Returns whether more than kWorkMax was asked for since, or more than the arrays may hold: the
  // places made since may lack ways to read the text.
  bool exhausted() const { return exhausted_; }

 private:
  static constexpr int kNone = -1, kRootFrame = 0;
  static constexpr std::size_t kEntriesMin = 1 << 16;
  struct Frame {
    int first_link;  // kNone: nobody goes on behind it, which is the whole text's end
    std::uint32_t place, ended_at;  // where it was entered; where its rule last ended
  };
  struct Link {
    Item behind;
    int next;
  };
  static_assert(sizeof(Item) + sizeof(Frame) + sizeof(Link) == kPlaceBytes);
  // An entry of the place that is made, once there are too many to look through.
  struct Known {
    int kind, state, frame;  // kind: kItem, or the frame whose link it is
    std::uint32_t place = 0;
  };
  static constexpr int kItem = -1;
  static constexpr std::size_t kFew = 16;
  void NewPlace();
  void Work(std::int64_t count);
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
  std::vector<int> frame_of_;            // by rule, of the place where place_of_ says so
  std::vector<std::size_t> links_of_;    // of that frame
  std::vector<std::uint32_t> place_of_;  // by rule
  std::uint32_t place_ = 0;
  std::size_t set_begin_ = 0;  // of the set that is made
  bool complete_ = false;
  Place start_;
  std::int64_t work_ = 0;
  bool exhausted_ = false;
  std::size_t entries_max_ = kEntriesMin;  // of each array
  std::vector<Known> known_;               // a hash table, of a power of two
  std::size_t known_count_ = 0;
};

}  // namespace thermocline::grammar
