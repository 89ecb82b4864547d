#include "engine/grammar/parser.h"

#include <algorithm>
#include <utility>

namespace thermocline::grammar {

void Parser::Reserve(std::size_t places) {
  items_.reserve(places);
  frames_.reserve(places);
  links_.reserve(places);
}

void Parser::Begin(const Automaton& automaton) { BeginAt(automaton, automaton.start()); }

void Parser::BeginAt(const Automaton& automaton, int state) {
  automaton_ = &automaton;
  items_.clear();
  frames_.clear();
  links_.clear();
  const auto rules = static_cast<std::size_t>(automaton.num_rules());
  if (frame_of_.size() < rules) {
    frame_of_.resize(rules);
    place_of_.resize(rules);
  }
  std::fill(place_of_.begin(), place_of_.end(), 0);
  place_ = 0;
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
  if (++place_ == UINT32_MAX) {  // old places may never look like this one
    std::fill(place_of_.begin(), place_of_.end(), 0);
    for (Frame& frame : frames_) frame.place = frame.ended_at = 0;
    place_ = 1;
  }
  set_begin_ = items_.size();
  complete_ = false;
}

Parser::Place Parser::Step(Set set, std::uint8_t byte) {
  NewPlace();
  for (std::size_t i = set.begin; i < set.end; ++i) {
    const Item item = items_[i];
    for (const ByteEdge& edge : automaton_->bytes(item.state))
      if (edge.lo <= byte && byte <= edge.hi) Add({edge.to, item.frame});
  }
  work_ += static_cast<std::int64_t>(set.end - set.begin);
  return Close();
}

Parser::Place Parser::StepToken(Set set, int token) {
  NewPlace();
  for (std::size_t i = set.begin; i < set.end; ++i) {
    const Item item = items_[i];
    for (const TokenEdge& edge : automaton_->tokens(item.state))
      if ((edge.token == token) != edge.negated) Add({edge.to, item.frame});
  }
  return Close();
}

void Parser::Add(Item item) {
  if (automaton_->ends(item.state)) return End(item.frame);
  const auto set = items_.begin() + static_cast<std::ptrdiff_t>(set_begin_);
  if (std::find(set, items_.end(), item) != items_.end()) return;
  if (items_.size() - set_begin_ >= kItemsMax) return;
  items_.push_back(item);
}

// Follows what consumes nothing, then keeps the items that can consume something.
Parser::Place Parser::Close() {
  for (std::size_t i = set_begin_; i < items_.size(); ++i) {
    const Item item = items_[i];
    if (automaton_->accepting(item.state)) End(item.frame);
    for (const RuleEdge& edge : automaton_->rules(item.state)) Enter(edge, item);
  }
  work_ += static_cast<std::int64_t>(items_.size() - set_begin_);
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
    frame_of_[edge.rule] = static_cast<int>(frames_.size());
    frames_.push_back({.first_link = kNone, .place = place_, .ended_at = 0});
  }
  const int frame = frame_of_[edge.rule];
  const Frame& above = frames_[item.frame];
  if (automaton_->ends(edge.to) && item.frame != kRootFrame && above.place != place_) {
    for (int link = above.first_link; link != kNone; link = links_[link].next)
      AddLink(frame, links_[link].behind);
  } else {
    AddLink(frame, {edge.to, item.frame});
  }
  if (!known) Add({automaton_->rule_start(edge.rule), frame});
}

void Parser::AddLink(int frame, Item behind) {
  for (int link = frames_[frame].first_link; link != kNone; link = links_[link].next)
    if (links_[link].behind == behind) return;
  links_.push_back({behind, frames_[frame].first_link});
  frames_[frame].first_link = static_cast<int>(links_.size()) - 1;
  if (frames_[frame].ended_at == place_) Add(behind);
}

// The rule of `frame` can end here: goes on behind it, also for those who enter it here later.
void Parser::End(int frame) {
  if (frame == kRootFrame) {
    complete_ = true;
    return;
  }
  if (std::exchange(frames_[frame].ended_at, place_) == place_) return;
  for (int link = frames_[frame].first_link; link != kNone; link = links_[link].next)
    Add(links_[link].behind);
}

Parser::Set Parser::MoveDown(Set set, std::size_t begin) {
  const std::size_t count = set.end - set.begin;
  std::copy_n(items_.begin() + static_cast<std::ptrdiff_t>(set.begin), count,
              items_.begin() + static_cast<std::ptrdiff_t>(begin));
  items_.resize(begin + count);
  return {begin, begin + count};
}

}  // namespace thermocline::grammar
