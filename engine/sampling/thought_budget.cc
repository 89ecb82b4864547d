#include "engine/sampling/thought_budget.h"

#include <algorithm>
#include <utility>

#include "engine/base/bytes.h"
#include "engine/base/index.h"

namespace thermocline::sampling {
namespace {

// Bytes missing in the last character after one more byte, by the first byte of a character.
int MissingBytes(int missing, char byte) {
  const auto bits = base::ByteOf(byte);
  if (bits >= 0xF0) return 3;
  if (bits >= 0xE0) return 2;
  if (bits >= 0xC0) return 1;
  return bits >= 0x80 ? std::max(0, missing - 1) : 0;
}

bool IsBlank(char byte) { return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t'; }

}  // namespace

StreamSearch::StreamSearch(std::string text) : text_(std::move(text)), shorter_(text_.size() + 1) {
  for (std::size_t i = 1; i < text_.size(); ++i) shorter_[i + 1] = Next(shorter_[i], text_[i]);
}

int StreamSearch::Next(int matched, char byte) const {
  if (text_.empty()) return -1;
  if (matched == size()) matched = shorter_[matched];
  while (matched > 0 && text_[matched] != byte) matched = shorter_[matched];
  return text_[matched] == byte ? matched + 1 : 0;
}

bool StreamSearch::IsIn(std::string_view text) const {
  int matched = 0;
  for (const char byte : text) {
    if (matched == size()) break;
    matched = Next(matched, byte);
  }
  return matched == size();
}

void ThoughtBudget::Begin(std::shared_ptr<const ThoughtLimit> limit) {
  limit_ = std::move(limit);
  history_.clear();
  if (!on()) return;
  State state{.inside = limit_->begins_inside};
  CheckLimit(state);
  history_.push_back(state);
}

void ThoughtBudget::Accept(int token) {
  State state = history_.back();
  if (state.forced >= 0 && token == EndingOf(state)[state.forced]) {
    AcceptForced(state);
  } else {
    AcceptFree(state, token);
  }
  CheckLimit(state);
  history_.push_back(state);
}

void ThoughtBudget::Retract() { history_.pop_back(); }

void ThoughtBudget::AcceptForced(State& state) const {
  if (++state.forced < base::IntSize(EndingOf(state))) return;
  state.forced = -1;
  state.inside = false;
  state.ended = true;
  state.open = state.close = 0;
}

void ThoughtBudget::AcceptFree(State& state, int token) const {
  state.forced = -1;
  if (state.inside) ++state.used;
  for (const char byte : limit_->tokenizer.TokenBytes(token, true)) {
    state.cut = MissingBytes(state.cut, byte);
    if (state.inside) {
      state.close = limit_->close.Next(state.close, byte);
      if (state.close == limit_->close.size()) state.inside = false;
    } else if (!state.text || limit_->opens_anywhere) {
      const int open = limit_->open.Next(state.open, byte);
      state.text = state.text || (open != state.open + 1 && !IsBlank(byte));
      state.open = open;
      state.inside = open == limit_->open.size();
    }
    if (state.inside) state.open = 0;
    if (!state.inside) state.close = 0;
  }
}

void ThoughtBudget::CheckLimit(State& state) const {
  const bool over = state.inside && state.used >= limit_->tokens_max && state.cut == 0;
  if (over && state.forced < 0 && !EndingOf(state).empty()) state.forced = 0;
}

int ThoughtBudget::ForcedToken() const {
  if (!on()) return -1;
  const State& state = history_.back();
  return state.forced < 0 ? -1 : EndingOf(state)[state.forced];
}

int ThoughtBudget::Forced(std::span<int> out) const {
  if (ForcedToken() < 0) return 0;
  const State& state = history_.back();
  const std::vector<int>& ending = EndingOf(state);
  const int count = std::min(base::IntSize(ending) - state.forced, base::IntSize(out));
  std::copy_n(ending.begin() + state.forced, count, out.begin());
  return count;
}

}  // namespace thermocline::sampling
