#include "engine/offline/hit_rates.h"

#include <limits>

#include "engine/base/check.h"
#include "engine/base/index.h"
#include "engine/spec/phi.h"

namespace thermocline::offline {
namespace {

// Weight of phi's estimate in a class, in outcomes, against the observed ones.
constexpr double kShrink = 4;
constexpr double kHindsightShrink = 1e-6;  // used only for classes without data

// [k][rank - 1]: relative likelihood of an outcome.
using Table = std::array<std::array<double, kRanksMax>, kDraftTokensMax + 1>;

// A learned share: hits out of trials, combined with a prior.
struct Share {
  double hits = 0, trials = 0;
  void Add(bool hit) { hits += hit, ++trials; }
  double Estimate(double otherwise, double weight) const {
    return (hits + weight * otherwise) / (trials + weight);
  }
};

// Learns from rounds to predict the next one.
class Learned {
 public:
  explicit Learned(double shrink) : shrink_(shrink) {}

  void Add(const RecordedRound& r) {
    phi_.Add(r.k, r.n);
    const auto known = base::IntSize(r.confidence);
    for (int j = 0; j < known && j <= r.k; ++j) {
      if (j == r.n && r.rank < 0) break;
      const bool accepted = j < r.n ? j < r.k : r.rank == 1;
      classes_[r.confidence[j]].Add(accepted);
    }
    if (r.rank < 0) return;
    if (r.k == r.n) next_.Add(r.rank == 1);
    const bool refused = r.k < r.n || r.rank != 1;
    const int other = r.k == r.n && r.rank > 0 ? r.rank - 1 : r.rank;
    for (int rank = 1; refused && rank < kRanksMax; ++rank) others_[rank - 1].Add(rank == other);
  }

  Table Outcomes(const RecordedRound& r, bool with_confidence) const {
    Table table = {};
    double reached = 1;
    for (int k = 0; k <= r.n; ++k) {
      const double accepted = Accepted(r, k, with_confidence);
      for (int rank = 1; rank <= kRanksMax; ++rank) {
        const double right = k < r.n     ? (1 - accepted) * Other(rank)
                             : rank == 1 ? accepted
                                         : (1 - accepted) * Other(rank - 1);
        table[k][rank - 1] = reached * right;
      }
      reached *= accepted;
    }
    return table;
  }

  const spec::Phi& phi() const { return phi_.phi(); }

 private:
  // The probability that token j is accepted if the earlier ones are; for j = n, that it is the
  // token that follows.
  double Accepted(const RecordedRound& r, int j, bool with_confidence) const {
    const double reached = phi().AtLeast(j, kDraftTokensMax);
    const double by_phi = reached > 0 && j < r.n ? phi().AtLeast(j + 1, r.n) / reached : 0;
    const double share = j < r.n ? by_phi : next_.Estimate(phi().p, 1);
    if (!with_confidence || j >= base::IntSize(r.confidence)) return share;
    return classes_[r.confidence[j]].Estimate(share, shrink_);
  }
  // The probability that the replacement of a rejected token is the draft's other token of this
  // rank.
  double Other(int rank) const {
    return rank < kRanksMax ? others_[rank - 1].Estimate(1.0 / (1 << rank), 1) : 0;
  }

  double shrink_;
  spec::PhiEstimator phi_{spec::Phi()};
  std::array<Share, spec::kConfidenceClasses> classes_;
  Share next_;
  std::array<Share, kRanksMax - 1> others_;
};

// Number of branches before the outcome; ties go to the longer, then to the lower rank.
int Place(const Table& table, const RecordedRound& r) {
  if (r.rank <= 0) return std::numeric_limits<int>::max();
  const double own = table[r.k][r.rank - 1];
  if (own <= 0) return std::numeric_limits<int>::max();
  int before = 0;
  for (int k = 0; k <= r.n; ++k) {
    for (int rank = 1; rank <= kRanksMax; ++rank) {
      const double other = table[k][rank - 1];
      const bool earlier = k > r.k || (k == r.k && rank < r.rank);
      before += other > own || (other == own && earlier);
    }
  }
  return before;
}

// One branch for each length, right only for the whole draft and its next token.
int PaperPlace(const spec::Phi& phi, const RecordedRound& r) {
  if (r.k < r.n || r.rank != 1) return std::numeric_limits<int>::max();
  Table lengths = {};
  for (int k = 0; k <= r.n; ++k) lengths[k][0] = phi(k, r.n);
  return Place(lengths, r);
}

}  // namespace

const char* HitPolicyName(HitPolicy policy) {
  static constexpr const char* kNames[] = {"ours", "phi", "paper", "oracle", "hindsight"};
  return kNames[base::Index(policy)];
}

HitCounts CountHits(std::span<const RecordedRound> rounds) {
  std::vector<Table> shares(kDraftTokensMax + 1);  // [n]
  Learned all(kHindsightShrink), before(kShrink);
  for (const RecordedRound& r : rounds) {
    CHECK(r.n > 0 && r.n <= kDraftTokensMax && r.k >= 0 && r.k <= r.n);
    CHECK(r.rank >= -1 && r.rank <= kRanksMax);
    all.Add(r);
    if (r.rank > 0) ++shares[r.n][r.k][r.rank - 1];
  }
  HitCounts counts = {};
  const auto add = [&](HitPolicy policy, int place) {
    for (int w = place; w < kBranchesMax; ++w) ++counts[base::Index(policy)][w];
  };
  for (const RecordedRound& r : rounds) {
    add(HitPolicy::kOurs, Place(before.Outcomes(r, true), r));
    add(HitPolicy::kPhi, Place(before.Outcomes(r, false), r));
    add(HitPolicy::kPaper, PaperPlace(before.phi(), r));
    add(HitPolicy::kOracle, Place(shares[r.n], r));
    add(HitPolicy::kHindsight, Place(all.Outcomes(r, true), r));
    before.Add(r);
  }
  return counts;
}

}  // namespace thermocline::offline
