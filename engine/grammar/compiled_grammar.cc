#include "engine/grammar/compiled_grammar.h"

#include <algorithm>
#include <utility>

#include "engine/grammar/ambiguity_probe.h"

namespace thermocline::grammar {
namespace {

// A state has a table if its walk may visit more nodes than this (some microseconds), and if many
// bytes are allowed: with few allowed bytes, the next byte usually ends the walk at once.
constexpr std::int64_t kShortWalk = 150;
constexpr int kManyBytes = 16;

// The trie to walk from a state, without tokens known to be allowed.
const VocabularyIndex::Slice* SliceOf(const Automaton& automaton, int state,
                                      const VocabularyIndex& vocabulary) {
  for (const VocabularyIndex::Slice& slice : vocabulary.slices())
    if (automaton.plain_depth(state) >= slice.chars) return &slice;
  return nullptr;
}

// Nodes that a walk from `state` may visit; 0 if few bytes are allowed.
std::int64_t WalkLength(const Automaton& automaton, int state, const VocabularyIndex& vocabulary) {
  const VocabularyIndex::Slice* slice = SliceOf(automaton, state, vocabulary);
  const TokenTrie& trie = slice != nullptr ? slice->rest : vocabulary.all();
  std::int64_t count = 0;
  int bytes = 0;
  for (const ByteEdge& edge : automaton.bytes(state)) {
    for (int byte = edge.lo; byte <= edge.hi; ++byte, ++bytes) count += trie.nodes_with(byte);
  }
  return bytes >= kManyBytes ? count : 0;
}

// Classifies the tokens of a trie by their effect on a state whose rule has an unknown caller.
class TableWalk {
 public:
  TableWalk(Parser& parser, const ByteSet& follow, int depth_max)
      : parser_(parser), follow_(follow), at_(static_cast<std::size_t>(depth_max) + 1) {}

  // False: a token has too many ways to be parsed.
  template <typename Accept>
  bool Run(Parser::Set start, std::span<const TrieNode> nodes, Accept accept,
           std::vector<int>& uncertain) {
    parser_.ClearWork();
    at_[0] = {.place = {.set = start, .complete = false}, .mark = parser_.mark(), .left = false};
    for (std::size_t i = 0; i < nodes.size();) {
      const TrieNode& node = nodes[i];
      const Depth& before = at_[node.depth - 1];
      Depth& here = at_[node.depth];
      parser_.CutTo(before.mark);
      // True if an earlier byte ended the rule and the bytes since then can follow it.
      here.left = before.left || (before.place.complete && follow_.test(node.byte));
      here.place = parser_.Step(before.place.set, node.byte);
      here.mark = parser_.mark();
      if (parser_.exhausted()) return false;
      const bool alive = !here.place.set.empty() || here.place.complete;
      if (!alive) {
        for (std::size_t k = i; here.left && k < node.next; ++k)
          if (nodes[k].token >= 0) uncertain.push_back(nodes[k].token);
        i = node.next;
        continue;
      }
      if (node.token >= 0) accept(node.token);
      ++i;
    }
    return true;
  }

 private:
  struct Depth {
    Parser::Place place;
    Parser::Mark mark;
    bool left;
  };
  Parser& parser_;
  const ByteSet& follow_;
  std::vector<Depth> at_;
};

}  // namespace

Result<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::Create(const Grammar& grammar,
                                                                       const Params& params,
                                                                       Budget& budget) {
  ASSIGN_OR_RETURN(Automaton automaton, Automaton::Create(grammar, budget));
  RETURN_IF_ERROR(CheckAmbiguity(automaton));
  for (int state = 0; state < automaton.num_states(); ++state) {
    for (const TokenEdge& edge : automaton.tokens(state)) {
      if (edge.token < 0 || edge.token >= params.vocabulary->vocab_size())
        return base::InvalidArgument("token ", edge.token, " is outside the vocabulary of ",
                                     params.vocabulary->vocab_size(), " tokens");
    }
  }
  std::shared_ptr<CompiledGrammar> out(new CompiledGrammar(std::move(automaton), params));
  std::size_t table_bytes = params.table_bytes_max;
  if (params.take_room) {
    ASSIGN_OR_RETURN(out->room_,
                     params.take_room(out->bytes_held_, out->bytes_held_ + table_bytes));
    table_bytes = out->room_.bytes() - out->bytes_held_;
  }
  out->MakeTables(table_bytes, budget);
  out->room_.ShrinkTo(out->bytes_held_);
  return std::shared_ptr<const CompiledGrammar>(std::move(out));
}

CompiledGrammar::CompiledGrammar(Automaton automaton, const Params& params)
    : automaton_(std::move(automaton)),
      vocabulary_(params.vocabulary),
      counters_(params.counters),
      table_of_(automaton_.num_states(), -1),
      bytes_held_(sizeof(*this) + automaton_.bytes_held() + table_of_.size() * sizeof(int)) {}

void CompiledGrammar::MakeTables(std::size_t bytes_max, const Budget& budget) {
  std::vector<std::pair<std::int64_t, int>> states;  // the states with the longest walks first
  for (int state = 0; state < automaton_.num_states(); ++state) {
    const std::int64_t length = WalkLength(automaton_, state, *vocabulary_);
    if (length > kShortWalk) states.emplace_back(-length, state);
  }
  std::stable_sort(states.begin(), states.end());
  Parser parser;
  std::size_t held = 0;
  for (const auto& [length, state] : states) {
    if (budget.late()) break;
    std::optional<Table> table = MakeTable(state, parser);
    if (!table.has_value()) continue;
    const std::size_t bytes =
        table->accepted.size() * sizeof(std::uint64_t) + table->uncertain.bytes_held();
    if (held + bytes > bytes_max) break;
    held += bytes;
    table_of_[state] = base::IntSize(tables_);
    tables_.push_back(*std::move(table));
  }
  bytes_held_ += held;
}

std::optional<CompiledGrammar::Table> CompiledGrammar::MakeTable(int state, Parser& parser) const {
  const VocabularyIndex& v = *vocabulary_;
  parser.BeginAt(automaton_, state);
  Parser::Set start = parser.start().set;
  start.end = start.begin + 1;  // the state itself; states that it enters have their own tables
  if (parser.items(start)[0].state != state) return std::nullopt;
  Table table{.accepted = Bits(WordsFor(v.vocab_size())), .uncertain = {}};
  std::span<const TrieNode> nodes = v.all().nodes();
  if (const VocabularyIndex::Slice* slice = SliceOf(automaton_, state, v)) {
    table.accepted = slice->plain;
    nodes = slice->rest.nodes();
  }
  std::vector<int> uncertain;
  TableWalk walk(parser, automaton_.follow(state), v.depth_max());
  const bool within = walk.Run(
      start, nodes,
      [&](int token) {
        SetBit(table.accepted, token);
        for (const int twin : v.twins(token)) SetBit(table.accepted, twin);
      },
      uncertain);
  if (!within) return std::nullopt;
  table.uncertain = v.Part(uncertain);
  return table;
}

}  // namespace thermocline::grammar
