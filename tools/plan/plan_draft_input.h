// The input of `thermocline plan --draft`: a pair and recorded rounds.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/offline/hit_rates.h"
#include "engine/offline/simulator.h"

namespace thermocline::tools {

// Reads the member "pair" of a report of `bench --spec --json`. Unmeasured step times (0 or null)
// are interpolated between the measured ones. A missing bonus_hit is p of phi. Empty
// correction_hits (no correction was seen) are PairModel's, since the decoder drafts for
// corrections anyway. InvalidArgument names the file, the field and the value.
Result<offline::PairModel> ReadPair(const std::string& path);

// InvalidArgument naming `where` and the parameters unless phi, without truncation, is a
// distribution.
Status CheckPhi(const spec::Phi& phi, const std::string& where);
// InvalidArgument unless the hits are shares that sum to 1 at most.
Status CheckHits(const std::vector<double>& hits, const std::string& where);

// Reads rounds with a draft, at least one of a known rank: the member "rounds" of such a report, or
// one object a line.
Result<std::vector<offline::RecordedRound>> ReadRounds(const std::string& path);

}  // namespace thermocline::tools
