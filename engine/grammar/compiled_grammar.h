// A grammar bound to a vocabulary: the tokens that are allowed in each of its states.
//
// Most tokens that a state allows or forbids stay within its rule, whatever rules were entered
// before. For states with many possible tokens these are found once, while the grammar is compiled.
// The other tokens, whose text continues after the rule's end, are walked with the real stack when
// a mask is computed. States with few possible tokens have no such table, because their walk is
// short.
// Source: XGrammar (Dong et al. 2024), "context-independent tokens" and its context expansion by
// the bytes that can follow; llguidance's slices (Moskal et al. 2025) for long runs of string
// characters.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/grammar/automaton.h"
#include "engine/grammar/counters.h"
#include "engine/grammar/held_bytes.h"
#include "engine/grammar/parser.h"
#include "engine/grammar/token_trie.h"

namespace thermocline::grammar {

// Immutable, shared by the sequences and threads that use it.
class CompiledGrammar {
 public:
  struct Params {
    std::shared_ptr<const VocabularyIndex> vocabulary;
    std::shared_ptr<Counters> counters;  // or null
    std::size_t table_bytes_max = 32 << 20;
    // Reserves `least` bytes of the memory for all grammars, and up to `wanted` if there is space.
    // Empty: there is no limit.
    std::function<Result<HeldBytes>(std::size_t least, std::size_t wanted)> take_room = {};
  };
  // Tables are made until their memory or the budget's time is used up; without them masks are the
  // same but take longer. Errors as Automaton::Create and take_room; InvalidArgument: a token
  // outside the vocabulary.
  static Result<std::shared_ptr<const CompiledGrammar>> Create(const Grammar& grammar,
                                                               const Params& params,
                                                               Budget& budget);

  const Automaton& automaton() const { return automaton_; }
  const VocabularyIndex& vocabulary() const { return *vocabulary_; }
  Counters* counters() const { return counters_.get(); }

  struct Table {
    Bits accepted;        // whatever follows the rule
    TokenTrie uncertain;  // tokens that depend on the text after the rule
  };
  // Null: the state has no table.
  const Table* table(int state) const {
    return table_of_[state] < 0 ? nullptr : &tables_[table_of_[state]];
  }
  std::size_t tables() const { return tables_.size(); }
  std::size_t bytes_held() const { return bytes_held_; }

 private:
  CompiledGrammar(Automaton automaton, const Params& params);
  void MakeTables(std::size_t bytes_max, const Budget& budget);
  std::optional<Table> MakeTable(int state, Parser& parser) const;

  HeldBytes room_;  // released last
  const Automaton automaton_;
  const std::shared_ptr<const VocabularyIndex> vocabulary_;
  const std::shared_ptr<Counters> counters_;
  std::vector<int> table_of_;  // by state, -1 = none
  std::vector<Table> tables_;
  std::size_t bytes_held_ = 0;
};

}  // namespace thermocline::grammar
