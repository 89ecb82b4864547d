// One sequence under a grammar: which tokens may come next, token by token, and back again.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/grammar/compiled_grammar.h"

namespace thermocline::grammar {

// One thread at a time. It has the memory that an answer of usual shape needs from the start;
// deeper or more ambiguous ones grow it.
class Matcher {
 public:
  // `tokens_max`: of a sequence.
  explicit Matcher(int tokens_max, int vocab_size = 0);
  static std::size_t Bytes(int vocab_size, int tokens_max);  // of its buffers

  // Null: everything may come.
  void Begin(std::shared_ptr<const CompiledGrammar> grammar);
  bool on() const { return grammar_ != nullptr; }

  // Below: Requires on().
  // The tokens that may come, a bit each; the tokens that end an answer where the text may end.
  // Valid until Accept or Retract. Empty: none may (the text is over, or no token spells what is
  // left), or the token before was not allowed.
  std::span<const std::uint64_t> Mask();
  // Goes on making that mask, for about a slice of work; whether it is made. Masks cost up to
  // Parser::kWorkMax, and others wait meanwhile.
  bool MakeMask(std::int64_t slice);
  static constexpr std::int64_t kSlice = 250'000;  // about 1.5 ms
  // Returns whether the last mask, or reading the last token, was given up: the grammar is too
  // ambiguous.
  bool overrun() const { return overrun_ || history_.back().overrun; }
  // Goes on behind `token`. One that may not come leaves nothing that may.
  void Accept(int token);
  void Retract();
  // True if nothing can come behind the first `count` accepted tokens: the text is whole.
  bool IsOver(std::size_t count) const { return history_[count].over; }
  // True if one of the first `count` accepted tokens was not allowed.
  bool IsLost(std::size_t count) const { return history_[count].lost; }
  // True if the text may end here.
  bool complete() const { return history_.back().place.complete; }
  // The tokens of the text that must come, if there is only one for the next bytes: as many as are
  // likely to be sampled so. Returns how many of `out` it filled.
  int Forced(std::span<int> out);

 private:
  struct Position {
    Parser::Place place;
    Parser::Mark mark;
    bool over = false, lost = false, overrun = false;
  };
  Position BehindBytes(const Position& from, const std::string& bytes);
  // A walk over a trie, which may pause.
  enum class Pace { kDone, kPaused, kTooLong };
  void BeginWalk(Parser::Set set, std::span<const TrieNode> nodes);
  Pace Walk(std::int64_t work_max);
  void BeginMask();
  bool NextTable();
  void EndMask(bool within);
  void AddTokens(Parser::Set set);
  std::size_t ForcedBytes(std::span<char> out);
  void Allow(int token);

  std::shared_ptr<const CompiledGrammar> grammar_;
  Parser parser_;
  std::vector<Position> history_;  // before the first token, and behind each
  Bits mask_;
  bool mask_valid_ = false, filling_ = false, overrun_ = false;
  std::size_t table_item_ = 0;        // of the items with tables: the next one to walk
  std::span<const TrieNode> walked_;  // what is walked now
  std::size_t walked_to_ = 0;
  struct Depth {
    Parser::Set set;
    Parser::Mark mark;
  };
  std::vector<Depth> depths_;  // of a walk
};

}  // namespace thermocline::grammar
