// The state of one sequence in a grammar: the tokens allowed next, advanced token by token, with
// undo.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/grammar/compiled_grammar.h"

namespace thermocline::grammar {

// One thread at a time. Memory for answers of usual shape is allocated at the start; deeper or more
// ambiguous ones grow it.
class Matcher {
 public:
  // `tokens_max`: maximum tokens of a sequence.
  explicit Matcher(int tokens_max, int vocab_size = 0);
  static std::size_t Bytes(int vocab_size, int tokens_max);  // of its buffers

  // Null: every token is allowed.
  void Begin(std::shared_ptr<const CompiledGrammar> grammar);
  bool on() const { return grammar_ != nullptr; }

  // The functions below require on().
  //
  // Returns the allowed tokens, a bit each, including end tokens if the text may end. Valid until
  // Accept or Retract. Empty: no token is allowed (the text is complete, or no token spells the
  // remaining text), or the last token was not allowed.
  std::span<const std::uint64_t> Mask();
  // Continues computing that mask for about a slice of work, after the last token is parsed.
  // Returns true if it is complete. Tokens and masks cost up to Parser::kWorkMax each, and other
  // sequences wait meanwhile.
  bool MakeMask(std::int64_t slice);
  static constexpr std::int64_t kSlice = 80'000;  // about 0.5 ms
  // Returns true if computing the last mask or parsing the last token was given up because the
  // grammar is too ambiguous.
  bool overrun() const { return overrun_ || history_.back().overrun; }
  // Advances by `token`. After a token that is not allowed, no token is allowed. Parses the token
  // for about a slice of work; of a more ambiguous place MakeMask parses the rest, and until then
  // the new position is neither over nor lost.
  void Accept(int token);
  void Retract();
  // True if no token can come after the first `count` accepted tokens: the text is complete.
  bool IsOver(std::size_t count) const { return history_[count].over; }
  // True if one of the first `count` accepted tokens was not allowed.
  bool IsLost(std::size_t count) const { return history_[count].lost; }
  // True if the text may end here. Requires: a complete mask since the last token.
  bool complete() const { return history_.back().place.complete; }
  // Fills `out` with the next tokens of text that the grammar forces, as far as sampling is likely
  // to choose the same tokens. Returns their number.
  int Forced(std::span<int> out);

 private:
  struct Position {
    Parser::Place place;
    Parser::Mark mark;
    bool over = false, lost = false, overrun = false;
  };
  bool ParseOn(std::int64_t slice);
  void EndToken(bool has_bytes);
  // A walk over a trie, which can be paused.
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
  std::vector<Position> history_;  // before the first token, and after each
  static constexpr int kParsed = -1;
  int token_ = kParsed;     // the last token while it is being parsed
  std::size_t parsed_ = 0;  // its bytes that are parsed
  Parser::Place behind_;    // the place behind these bytes
  Bits mask_;
  bool mask_valid_ = false, filling_ = false, overrun_ = false;
  std::size_t table_item_ = 0;        // of the items with tables: the next one to walk
  std::span<const TrieNode> walked_;  // the nodes being walked
  std::size_t walked_to_ = 0;
  struct Depth {
    Parser::Set set;
    Parser::Mark mark;
  };
  std::vector<Depth> depths_;  // of a walk
};

}  // namespace thermocline::grammar
