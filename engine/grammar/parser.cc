#include "engine/grammar/parser.h"

#include <algorithm>
#include <utility>

#include "engine/base/index.h"

namespace thermocline::grammar {

void Parser::Reserve(std::size_t places) {
  items_.reserve(places);
  frames_.reserve(places);
  links_.reserve(places);
  entries_max_ = std::max(kEntriesMin, places);
}

void Parser::Begin(const Automaton& automaton) { BeginAt(automaton, automaton.start()); }

void Parser::BeginAt(const Automaton& automaton, int state) {
  automaton_ = &automaton;
  items_.clear();
  frames_.clear();
  links_.clear();
  const std::size_t rules = automaton.num_rules();
  if (frame_of_.size() < rules) {
    frame_of_.resize(rules);
    links_of_.resize(rules);
    place_of_.resize(rules);
  }
  std::fill(place_of_.begin(), place_of_.end(), 0);
  // Places go on counting: entries of earlier texts in the table must not be taken for this one's.
  frames_.push_back({.first_link = kNone, .place = 0, .ended_at = 0});
  NewPlace();
  Add({state, kRootFrame});
  start_ = Close();
}

void Parser::CutTo(const Mark& mark) {
  items_.resize(mark.items);
  frames_.resize(mark.frames, {kNone, 0, 0});
  links_.resize(mark.links);
}

void Parser::NewPlace() {
  if (++place_ == UINT32_MAX) {  // old places must not equal new ones
    std::fill(place_of_.begin(), place_of_.end(), 0);
    for (Frame& frame : frames_) frame.place = frame.ended_at = 0;
    for (Known& entry : known_) entry.place = 0;
    place_ = 1;
  }
  set_begin_ = items_.size();
  complete_ = false;
  known_count_ = 0;
}

void Parser::Work(std::int64_t count) {
  work_ += count;
  exhausted_ = exhausted_ || work_ > kWorkMax || items_.size() >= entries_max_ ||
               frames_.size() >= entries_max_ || links_.size() >= entries_max_;
}

// Inserts `entry` into the table; false: it is already there.
bool Parser::IsNew(const Known& entry) {
  if (2 * (known_count_ + 1) > known_.size()) {
    const std::vector<Known> old =
        std::exchange(known_, std::vector<Known>(std::max<std::size_t>(256, 2 * known_.size())));
    known_count_ = 0;
    for (const Known& each : old)
      if (each.place == place_) IsNew(each);
  }
  const std::size_t mask = known_.size() - 1;
  std::uint64_t hash = static_cast<std::uint32_t>(entry.kind);
  for (const int part : {entry.state, entry.frame})
    hash = (hash ^ static_cast<std::uint32_t>(part)) * 0x9E3779B97F4A7C15U ^ hash >> 29;
  for (std::size_t at = hash >> 20;; ++at) {
    Known& slot = known_[at & mask];
    if (slot.place != place_) {
      slot = entry;
      slot.place = place_;
      ++known_count_;
      return true;
    }
    ++work_;
    if (slot.kind == entry.kind && slot.state == entry.state && slot.frame == entry.frame)
      return false;
  }
}

bool Parser::HasItem(Item item) {
  const std::size_t count = items_.size() - set_begin_;
  if (count < kFew) {
    const auto set = items_.begin() + set_begin_;
    return std::find(set, items_.end(), item) != items_.end();
  }
  if (count == kFew)
    for (const Item& each : items({set_begin_, items_.size()}))
      IsNew({kItem, each.state, each.frame});
  return !IsNew({kItem, item.state, item.frame});
}

// Returns true if `frame` already has a link to `behind`; otherwise the caller must add it. From
// kFew links on, they are also in the table, which knows only the current place: that is enough,
// because a frame gets all its links at the place where its rule is entered.
bool Parser::HasLink(int frame, int rule, Item behind) {
  const bool few = links_of_[rule] < kFew, now_many = links_of_[rule] == kFew;
  if (!few && !now_many) return !IsNew({frame, behind.state, behind.frame});
  for (int link = frames_[frame].first_link; link != kNone; link = links_[link].next) {
    const Item& each = links_[link].behind;
    if (few && each == behind) return true;
    if (now_many) IsNew({frame, each.state, each.frame});
  }
  return now_many && !IsNew({frame, behind.state, behind.frame});
}

Parser::Place Parser::Step(Set set, std::uint8_t byte) {
  NewPlace();
  Work(set.end - set.begin);
  for (std::size_t i = set.begin; i < set.end && !exhausted_; ++i) {
    const Item item = items_[i];
    const std::span<const ByteEdge> edges = automaton_->bytes(item.state);
    Work(std::ssize(edges) / kEdgesOfAnItem);
    for (const ByteEdge& edge : edges)
      if (edge.lo <= byte && byte <= edge.hi) Add({edge.to, item.frame});
  }
  return Close();
}

Parser::Place Parser::StepToken(Set set, int token) {
  NewPlace();
  for (std::size_t i = set.begin; i < set.end && !exhausted_; ++i) {
    const Item item = items_[i];
    const std::span<const TokenEdge> edges = automaton_->tokens(item.state);
    Work(std::ssize(edges));
    for (const TokenEdge& edge : edges)
      if ((edge.token == token) != edge.negated) Add({edge.to, item.frame});
  }
  return Close();
}

void Parser::Add(Item item) {
  Work(1);
  if (exhausted_) return;
  if (automaton_->ends(item.state)) return End(item.frame);
  if (!HasItem(item)) items_.push_back(item);
}

// Follows edges that consume nothing, then keeps the items that can consume input.
Parser::Place Parser::Close() {
  for (std::size_t i = set_begin_; i < items_.size() && !exhausted_; ++i) {
    const Item item = items_[i];
    if (automaton_->accepting(item.state)) End(item.frame);
    for (const RuleEdge& edge : automaton_->rules(item.state)) Enter(edge, item);
  }
  std::size_t kept = set_begin_;
  for (std::size_t i = set_begin_; i < items_.size(); ++i)
    if (automaton_->consumes(items_[i].state)) items_[kept++] = items_[i];
  items_.resize(kept);
  return {.set = {set_begin_, kept}, .complete = complete_};
}

void Parser::Enter(const RuleEdge& edge, Item item) {
  const bool known = place_of_[edge.rule] == place_;
  if (!known) {
    place_of_[edge.rule] = place_;
    frame_of_[edge.rule] = base::IntSize(frames_);
    links_of_[edge.rule] = 0;
    frames_.push_back({.first_link = kNone, .place = place_, .ended_at = 0});
  }
  const int frame = frame_of_[edge.rule];
  const Frame& above = frames_[item.frame];
  if (automaton_->ends(edge.to) && item.frame != kRootFrame && above.place != place_) {
    for (int link = above.first_link; link != kNone && !exhausted_; link = links_[link].next)
      AddLink(frame, edge.rule, links_[link].behind);
  } else {
    AddLink(frame, edge.rule, {edge.to, item.frame});
  }
  if (!known) Add({automaton_->rule_start(edge.rule), frame});
}

void Parser::AddLink(int frame, int rule, Item behind) {
  Work(1);
  if (exhausted_ || HasLink(frame, rule, behind)) return;
  ++links_of_[rule];
  links_.push_back({behind, frames_[frame].first_link});
  frames_[frame].first_link = base::IntSize(links_) - 1;
  if (frames_[frame].ended_at == place_) Add(behind);
}

// The rule of `frame` can end here: continues after it, also for items that enter it here later.
void Parser::End(int frame) {
  if (frame == kRootFrame) {
    complete_ = true;
    return;
  }
  if (std::exchange(frames_[frame].ended_at, place_) == place_) return;
  for (int link = frames_[frame].first_link; link != kNone && !exhausted_; link = links_[link].next)
    Add(links_[link].behind);
}

Parser::Set Parser::MoveDown(Set set, std::size_t begin) {
  const std::size_t count = set.end - set.begin;
  std::copy_n(items_.begin() + set.begin, count, items_.begin() + begin);
  items_.resize(begin + count);
  return {begin, begin + count};
}

}  // namespace thermocline::grammar
