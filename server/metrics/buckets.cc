#include "engine/api/step_stats.h"
#include "engine/base/check.h"
#include "server/metrics/table.h"

namespace thermocline::server {
namespace {

const std::vector<double> kFirstToken = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75,
                                         1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 300};
const std::vector<double> kInterToken = {.001, .002, .003, .005, .0075, .01, .015, .02,
                                         .03,  .04,  .05,  .075, .1,    .15, .2,   .3,
                                         .5,   .75,  1,    2.5,  5,     10};
const std::vector<double> kRequest = {.05, .1, .2, .3, .5, .8, 1,   1.5, 2,   2.5, 5,   10,
                                      15,  20, 30, 40, 50, 60, 120, 240, 480, 960, 1920};
const std::vector<double> kTokens = {1,   2,    5,    10,   20,    50,    100,   200,
                                     500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
const std::vector<double> kTokenize = {.0001, .0002, .0005, .001, .002, .005,
                                       .01,   .02,   .05,   .1,   .25,  1};

}  // namespace

std::vector<double> BordersOf(Ladder ladder, const MetricBuckets& configured) {
  const auto first = [](const std::vector<double>& wanted, const std::vector<double>& own) {
    return wanted.empty() ? own : wanted;
  };
  switch (ladder) {
    case Ladder::kFirstToken:
      return first(configured.first_token, kFirstToken);
    case Ladder::kInterToken:
      return first(configured.inter_token, kInterToken);
    case Ladder::kRequest:
      return first(configured.request, kRequest);
    case Ladder::kTokens:
      return first(configured.tokens, kTokens);
    case Ladder::kTokenize:
      return first(configured.tokenize, kTokenize);
    case Ladder::kStep:
      return {kStepSecondsBorders.begin(), kStepSecondsBorders.end()};
    case Ladder::kBatch:
      return {kStepTokensBorders.begin(), kStepTokensBorders.end()};
    case Ladder::kNone:
      break;
  }
  CHECK(false);
  return {};
}

}  // namespace thermocline::server
