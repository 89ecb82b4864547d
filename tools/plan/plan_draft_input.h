// What `thermocline plan --draft` reads: a pair and recorded rounds.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/offline/hit_rates.h"
#include "engine/offline/simulator.h"

namespace thermocline::tools {

// The member "pair" of a report of `bench --spec --json`. Times of a step that were not measured (0
// or null) are taken from a straight line between those that were; a bonus_hit that is missing is p
// of phi, and correction_hits that are empty (no correction was seen) are PairModel's, since the
// decoder drafts for them all the same. InvalidArgument names the file, the field and the value.
Result<offline::PairModel> ReadPair(const std::string& path);

// InvalidArgument naming `where` and the parameters unless phi is a distribution without cutting.
Status CheckPhi(const spec::Phi& phi, const std::string& where);
// The same unless they are shares that sum to 1 at most.
Status CheckHits(const std::vector<double>& hits, const std::string& where);

// Rounds with a draft, at least one of a known rank: the member "rounds" of such a report, or one
// object a line.
Result<std::vector<offline::RecordedRound>> ReadRounds(const std::string& path);

}  // namespace thermocline::tools
