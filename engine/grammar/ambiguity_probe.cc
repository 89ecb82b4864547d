#include "engine/grammar/ambiguity_probe.h"

#include <algorithm>
#include <vector>

#include "engine/base/index.h"
#include "engine/grammar/parser.h"

namespace thermocline::grammar {
namespace {

constexpr int kBytes = 160;                   // of the text
constexpr std::size_t kChoices = 8;           // bytes tried at each place
constexpr std::int64_t kWorkMax = 4'000'000;  // for the whole probe: some 20 ms
// Work of one byte above which growth matters, and the ratio of the work in the text's second half
// to the first: 4 if work grows with the square of the length, 2 if linearly.
constexpr std::int64_t kMuch = 2048;
constexpr double kFaster = 2.6;

class Probe {
 public:
  explicit Probe(const Automaton& automaton) : automaton_(automaton) {
    parser_.Begin(automaton);
    place_ = parser_.start();
  }

  // Work of each byte of the text.
  std::vector<std::int64_t> Run() {
    std::vector<std::int64_t> works;
    while (base::IntSize(works) < kBytes && spent_ < kWorkMax && !place_.set.empty()) {
      const auto choices = Choices(works.size());
      if (choices.empty()) break;  // only tokens can follow
      const Parser::Mark mark = parser_.mark();
      std::uint8_t best = choices.front();
      std::size_t most = 0;
      for (const std::uint8_t byte : choices) {
        Step(byte);
        const std::size_t ways = stepped_.set.end - stepped_.set.begin;
        if (ways > most) {
          most = ways;
          best = byte;
        }
        parser_.CutTo(mark);
      }
      works.push_back(Step(best));
      if (parser_.exhausted()) break;
      place_ = stepped_;
    }
    return works;
  }

 private:
  std::int64_t Step(std::uint8_t byte) {
    parser_.ClearWork();
    stepped_ = parser_.Step(place_.set, byte);
    spent_ += parser_.work();
    return parser_.work();
  }

  // First bytes of the allowed ranges, starting with a different one at each place.
  std::vector<std::uint8_t> Choices(std::size_t turn) const {
    std::vector<std::uint8_t> found;
    for (const Item& item : parser_.items(place_.set))
      for (const ByteEdge& edge : automaton_.bytes(item.state)) found.push_back(edge.lo);
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    if (found.empty()) return found;
    std::rotate(found.begin(), found.begin() + turn % found.size(), found.end());
    if (found.size() > kChoices) found.resize(kChoices);
    return found;
  }

  const Automaton& automaton_;
  Parser parser_;
  Parser::Place place_, stepped_;
  std::int64_t spent_ = 0;
};

}  // namespace

Status CheckAmbiguity(const Automaton& automaton) {
  const std::vector<std::int64_t> works = Probe(automaton).Run();
  const auto half = works.begin() + works.size() / 2;
  if (works.size() < 32) return OkStatus();
  const std::int64_t before = *std::max_element(works.begin(), half);
  const std::int64_t behind = *std::max_element(half, works.end());
  if (behind < kMuch || static_cast<double>(behind) < kFaster * static_cast<double>(before))
    return OkStatus();
  return base::InvalidArgument(
      "the grammar is too ambiguous: the ways to read a text of ", works.size(),
      " bytes grow faster than the text. Let each text be read in one way: write repetitions as "
      "x* or x+, not as a rule that stands in itself twice");
}

}  // namespace thermocline::grammar
