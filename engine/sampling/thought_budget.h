// Ends a model's reasoning after a number of tokens: the tokens of the ending are the only ones
// that can be drawn then.
// Source: the reasoning budget of llama.cpp's server.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"

namespace thermocline::sampling {

// A text that is looked for in bytes that come one by one. Source: Knuth, Morris and Pratt 1977.
class StreamSearch {
 public:
  explicit StreamSearch(std::string text);
  // The bytes of the text matched so far, after one more byte; the text's size: it was found.
  int Next(int matched, char byte) const;
  // Takes time linear in both texts.
  bool IsIn(std::string_view text) const;
  int size() const { return static_cast<int>(text_.size()); }

 private:
  std::string text_;
  std::vector<int> shorter_;  // the longest shorter match for each number of matched bytes
};

// The limit of one request; shared by its choices and drafts.
struct ThoughtLimit {
  const text::Tokenizer& tokenizer;
  int tokens_max = 0;          // of all reasoning in the answer
  StreamSearch open, close;    // the texts around reasoning
  bool begins_inside = false;  // the prompt ends within reasoning
  // Reasoning may follow text, in a message of its own; otherwise the mark in a text is text.
  bool opens_anywhere = false;
  // Tokens that end it: a message, if there is one, and the closing text. The second list is for
  // reasoning that begins anew behind the end.
  std::vector<int> ending = {}, ending_again = {};
};

// The state of one answer; one thread at a time.
class ThoughtBudget {
 public:
  // Null: no limit.
  void Begin(std::shared_ptr<const ThoughtLimit> limit);
  bool on() const { return limit_ != nullptr; }
  void Accept(int token);
  void Retract();
  // The only token that may come next; -1: any.
  int ForcedToken() const;
  // Writes the tokens that must come next, as many as fit `out`. Returns their number.
  int Forced(std::span<int> out) const;

 private:
  struct State {
    int used = 0;             // tokens of reasoning
    int forced = -1;          // tokens of the ending accepted so far; -1: it has not begun
    int open = 0, close = 0;  // matched bytes
    int cut = 0;              // bytes missing in the last character
    bool inside = false, ended = false;
    bool text = false;  // the answer's text has begun
  };
  // Begins the ending if the limit is reached behind a whole character.
  void CheckLimit(State& state) const;
  void AcceptForced(State& state) const;
  void AcceptFree(State& state, int token) const;
  const std::vector<int>& EndingOf(const State& state) const {
    return state.ended ? limit_->ending_again : limit_->ending;
  }

  std::shared_ptr<const ThoughtLimit> limit_;
  std::vector<State> history_;  // before the first token, and after each
};

}  // namespace thermocline::sampling
