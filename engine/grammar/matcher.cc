#include "engine/grammar/matcher.h"

#include <algorithm>
#include <utility>

#include "engine/base/stopwatch.h"

namespace thermocline::grammar {
namespace {

constexpr std::size_t kPlacesPerToken = 8, kPlacesOfWalk = 1 << 12;

// The child of `parent` (-1: the root) with `byte`; -1: none.
std::ptrdiff_t Child(std::span<const TrieNode> nodes, std::ptrdiff_t parent, std::uint8_t byte) {
  const std::ptrdiff_t end = parent < 0 ? nodes.size() : std::size_t{nodes[parent].next};
  for (std::ptrdiff_t i = parent + 1; i < end; i = nodes[i].next)
    if (nodes[i].byte == byte) return i;
  return -1;
}

std::size_t PlacesOf(int tokens_max) { return tokens_max * kPlacesPerToken + kPlacesOfWalk; }

}  // namespace

Matcher::Matcher(int tokens_max, int vocab_size) : mask_(WordsFor(vocab_size)) {
  parser_.Reserve(PlacesOf(tokens_max));
  history_.reserve(tokens_max + 1U);
}

std::size_t Matcher::Bytes(int vocab_size, int tokens_max) {
  return WordsFor(vocab_size) * sizeof(std::uint64_t) +
         (static_cast<std::size_t>(tokens_max) + 1) * sizeof(Position) +
         PlacesOf(tokens_max) * Parser::kPlaceBytes;
}

void Matcher::Begin(std::shared_ptr<const CompiledGrammar> grammar) {
  grammar_ = std::move(grammar);
  token_ = kParsed;
  mask_valid_ = filling_ = overrun_ = false;
  if (!on()) return;
  const VocabularyIndex& v = grammar_->vocabulary();
  mask_.resize(WordsFor(v.vocab_size()));
  depths_.resize(v.depth_max() + 1U);
  parser_.Begin(grammar_->automaton());
  history_.clear();
  const Parser::Place start = parser_.start();
  history_.push_back(
      {.place = start, .mark = parser_.mark(), .over = start.complete && start.set.empty()});
}

std::span<const std::uint64_t> Matcher::Mask() {
  while (!MakeMask(Parser::kWorkMax)) continue;
  return mask_;
}

void Matcher::Allow(int token) {
  SetBit(mask_, token);
  for (const int twin : grammar_->vocabulary().twins(token)) SetBit(mask_, twin);
}

bool Matcher::MakeMask(std::int64_t slice) {
  if (mask_valid_) return true;
  if (!ParseOn(slice)) return false;
  const base::Stopwatch watch;
  if (!std::exchange(filling_, true)) BeginMask();
  const std::int64_t work_max = parser_.work() + slice;
  Pace pace = Walk(work_max);
  while (pace == Pace::kDone && NextTable()) pace = Walk(work_max);
  if (pace != Pace::kPaused) EndMask(pace == Pace::kDone);
  if (Counters* counters = grammar_->counters()) {
    counters->masks.fetch_add(mask_valid_ ? 1 : 0, std::memory_order_relaxed);
    counters->mask_ns.fetch_add(static_cast<std::int64_t>(watch.Seconds() * 1e9),
                                std::memory_order_relaxed);
  }
  return mask_valid_;
}

// Allows the tokens that need no walk, and begins the walk of the items without a table: they are
// copied to the array's end and walked together.
void Matcher::BeginMask() {
  const Position here = history_.back();
  const VocabularyIndex& v = grammar_->vocabulary();
  std::fill(mask_.begin(), mask_.end(), 0);
  parser_.CutTo(here.mark);
  parser_.ClearWork();
  if (here.place.complete || here.over)
    for (const int token : v.ends()) SetBit(mask_, token);
  AddTokens(here.place.set);
  int plain_depth = 0;
  Parser::Set rest = parser_.BeginCopy();
  for (std::size_t i = here.place.set.begin; i < here.place.set.end; ++i) {
    const Item item = parser_.items({i, i + 1})[0];
    if (grammar_->table(item.state) != nullptr) continue;
    plain_depth = std::max(plain_depth, grammar_->automaton().plain_depth(item.state));
    rest = parser_.Copy(i);
  }
  table_item_ = here.place.set.begin;
  if (rest.empty()) return BeginWalk(rest, {});
  std::span<const TrieNode> nodes = v.all().nodes();
  for (const VocabularyIndex::Slice& slice : v.slices()) {
    if (plain_depth < slice.chars) continue;
    for (std::size_t w = 0; w < mask_.size(); ++w) mask_[w] |= slice.plain[w];
    nodes = slice.rest.nodes();
    break;
  }
  BeginWalk(rest, nodes);
}

// Begins the walk of the next item that has a table; false: there is none.
bool Matcher::NextTable() {
  const Position& here = history_.back();
  for (; table_item_ < here.place.set.end; ++table_item_) {
    const std::size_t i = table_item_;
    const CompiledGrammar::Table* table = grammar_->table(parser_.items({i, i + 1})[0].state);
    if (table == nullptr) continue;
    for (std::size_t w = 0; w < mask_.size(); ++w) mask_[w] |= table->accepted[w];
    parser_.CutTo(here.mark);
    BeginWalk({i, i + 1}, table->uncertain.nodes());
    ++table_item_;
    return true;
  }
  return false;
}

void Matcher::EndMask(bool within) {
  parser_.CutTo(history_.back().mark);
  if (!within) std::fill(mask_.begin(), mask_.end(), 0);
  overrun_ = !within;
  mask_valid_ = true;
  filling_ = false;
}

// Allows the tokens that the grammar names. A negated one allows all others, and two of them all.
void Matcher::AddTokens(Parser::Set set) {
  constexpr int kNone = -1, kAll = -2;
  int but = kNone;  // the only token that negated edges do not allow; kNone: there is no such edge
  for (const Item& item : parser_.items(set)) {
    const std::span<const TokenEdge> edges = grammar_->automaton().tokens(item.state);
    parser_.Work(std::ssize(edges));
    for (const TokenEdge& edge : edges) {
      if (!edge.negated) {
        SetBit(mask_, edge.token);
      } else if (but != edge.token) {
        but = but == kNone ? edge.token : kAll;
      }
    }
  }
  if (but == kNone) return;
  const bool named = but >= 0 && HasBit(mask_, but);
  const Bits& text = grammar_->vocabulary().text();
  for (std::size_t w = 0; w < mask_.size(); ++w) mask_[w] |= text[w];
  if (but >= 0 && !named) ClearBit(mask_, but);
}

void Matcher::BeginWalk(Parser::Set set, std::span<const TrieNode> nodes) {
  walked_ = nodes;
  walked_to_ = 0;
  depths_[0] = {set, parser_.mark()};
}

// Allows the tokens of the trie that can be parsed, until the work limit is reached.
Matcher::Pace Matcher::Walk(std::int64_t work_max) {
  for (std::size_t& i = walked_to_; i < walked_.size();) {
    if (parser_.work() > work_max) return Pace::kPaused;
    const TrieNode& node = walked_[i];
    const Depth& before = depths_[node.depth - 1];
    parser_.CutTo(before.mark);
    const Parser::Place place = parser_.Step(before.set, node.byte);
    if (parser_.exhausted()) return Pace::kTooLong;
    if (node.token >= 0 && (!place.set.empty() || place.complete)) Allow(node.token);
    if (place.set.empty()) {
      i = node.next;
      continue;
    }
    depths_[node.depth] = {place.set, parser_.mark()};
    ++i;
  }
  return Pace::kDone;
}

void Matcher::Accept(int token) {
  while (!ParseOn(Parser::kWorkMax)) continue;
  mask_valid_ = filling_ = overrun_ = false;
  const Position from = history_.back();
  Parser::Place nowhere;
  nowhere.set = {from.mark.items, from.mark.items};
  parser_.CutTo(from.mark);
  parser_.ClearWork();
  if (grammar_->vocabulary().is_end(token)) {
    const bool over = from.place.complete || from.over;
    history_.push_back({.place = nowhere, .mark = from.mark, .over = over, .lost = !over});
    return;
  }
  history_.push_back({.place = nowhere, .mark = from.mark});
  token_ = token;
  parsed_ = 0;
  behind_ = from.place;
  ParseOn(kSlice);
}

// Continues parsing the last token, for about a slice of work. Returns true if it is parsed.
bool Matcher::ParseOn(std::int64_t slice) {
  if (token_ == kParsed) return true;
  const std::string& bytes = grammar_->vocabulary().bytes(token_);
  const std::int64_t work_max = parser_.work() + slice;
  while (parsed_ < bytes.size()) {
    if (parser_.work() > work_max && !parser_.exhausted()) return false;
    behind_ = parser_.Step(behind_.set, bytes[parsed_++]);
    if (behind_.set.empty() && !behind_.complete) break;
  }
  EndToken(!bytes.empty());
  return true;
}

// Completes the last position: with the place behind the token's bytes, and the one behind the
// token where the grammar names it.
void Matcher::EndToken(bool has_bytes) {
  const Position& from = history_[history_.size() - 2];
  Position& next = history_.back();
  const std::size_t begin = from.mark.items;
  next.place = has_bytes ? behind_ : Parser::Place{};
  next.place.set = has_bytes ? parser_.MoveDown(behind_.set, begin) : Parser::Set{begin, begin};
  const Parser::Place named = parser_.StepToken(from.place.set, token_);
  // The two sets are adjacent.
  next.place.set.end = named.set.end;
  next.place.complete = next.place.complete || named.complete;
  next.mark = parser_.mark();
  next.overrun = parser_.exhausted();
  next.lost = next.overrun || (!next.place.complete && next.place.set.empty());
  next.over = next.place.complete && next.place.set.empty();
  token_ = kParsed;
}

void Matcher::Retract() {
  mask_valid_ = filling_ = overrun_ = false;
  token_ = kParsed;
  history_.pop_back();
  parser_.CutTo(history_.back().mark);
}

std::size_t Matcher::ForcedBytes(std::span<char> out) {
  const Automaton& automaton = grammar_->automaton();
  Parser::Place place = history_.back().place;
  filling_ = false;
  parser_.CutTo(history_.back().mark);
  parser_.ClearWork();
  std::size_t count = 0;
  constexpr std::int64_t kWorkMax = 250'000;
  while (parser_.work() < kWorkMax && count < out.size() && !place.complete && !place.set.empty()) {
    int byte = -1;
    for (const Item& item : parser_.items(place.set)) {
      if (!automaton.tokens(item.state).empty()) byte = 256;
      for (const ByteEdge& edge : automaton.bytes(item.state))
        byte = edge.lo == edge.hi && (byte < 0 || byte == edge.lo) ? edge.lo : 256;
      if (byte == 256) break;
    }
    if (byte < 0 || byte == 256) break;
    out[count++] = static_cast<char>(byte);
    place = parser_.Step(place.set, static_cast<std::uint8_t>(byte));
  }
  parser_.CutTo(history_.back().mark);
  return count;
}

int Matcher::Forced(std::span<int> out) {
  if (token_ != kParsed) return 0;  // nothing is forced where there are so many ways
  char bytes[128];
  const std::size_t count = ForcedBytes(bytes);
  const auto nodes = grammar_->vocabulary().all().nodes();
  int tokens = 0;
  for (std::size_t at = 0; at < count && tokens < base::IntSize(out);) {
    std::ptrdiff_t node = -1;
    int longest = -1;
    std::size_t end = at;
    bool goes_on = false;  // a longer token, with text beyond the forced one, begins with this
    for (std::size_t i = at; i < count; ++i) {
      node = Child(nodes, node, bytes[i]);
      if (node < 0) break;
      const TrieNode& found = nodes[node];
      if (found.token >= 0) {
        longest = found.token;
        end = i + 1;
      }
      goes_on = i + 1 == count && found.next > static_cast<std::uint32_t>(node) + 1;
    }
    // Sampling may choose that longer token.
    if (longest < 0 || goes_on) break;
    out[tokens++] = longest;
    at = end;
  }
  return tokens;
}

}  // namespace thermocline::grammar
