#include "tools/plan/plan_draft_input.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/base/json.h"
#include "engine/base/ratio.h"

namespace thermocline::tools {
namespace {

using base::InvalidArgument;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-6;

struct Range {
  double low = 0, high = kInfinity;
};

Result<double> ToNumber(const Json& value, const std::string& where, Range range) {
  if (!value.is_number())
    return InvalidArgument(where, " is a ", value.type_name(), ", not a number");
  const double number = value.as_double();
  if (!std::isfinite(number) || number < range.low || number > range.high)
    return InvalidArgument(where, " is ", number, ", not a number from ", range.low, " to ",
                           range.high);
  return number;
}

// The members of one object; `where` precedes their names in messages.
struct Reader {
  const Json& object;
  std::string where;

  std::string Name(const char* field) const { return StrCat(where, ".", field); }
  Result<double> Number(const char* field, Range range) const {
    const Json* value = object.Find(field);
    if (value == nullptr) return InvalidArgument(Name(field), " is missing");
    return ToNumber(*value, Name(field), range);
  }
  Result<double> NumberOr(const char* field, Range range, double otherwise) const {
    if (object.Find(field) == nullptr) return otherwise;
    return Number(field, range);
  }
  Result<const Json::Array*> List(const char* field) const {
    const Json* value = object.Find(field);
    if (value == nullptr || !value->is_array())
      return InvalidArgument(Name(field), " is missing, or no array");
    return &value->as_array();
  }
  Result<int> Integer(const char* field, int low, int high) const {
    ASSIGN_OR_RETURN(const double number,
                     Number(field, {static_cast<double>(low), static_cast<double>(high)}));
    if (number != std::floor(number)) return InvalidArgument(Name(field), " is no whole number");
    return static_cast<int>(number);
  }
};

Result<std::vector<double>> ReadTimes(const Reader& pair) {
  ASSIGN_OR_RETURN(const Json::Array* list, pair.List("verify_s"));
  std::vector<double> times;
  std::size_t measured = 0;  // entries up to the last measured one
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& value = (*list)[i];
    double time = 0;
    const std::string name = StrCat(pair.Name("verify_s"), "[", i, "]");
    if (!value.is_null()) {
      ASSIGN_OR_RETURN(time, ToNumber(value, name, {}));
    }
    times.push_back(time);
    if (time <= 0) continue;
    for (std::size_t j = measured; j < i && measured > 0; ++j) {
      const double part = base::Ratio(j - measured + 1, i - measured + 1);
      times[j] = times[measured - 1] + part * (time - times[measured - 1]);
    }
    measured = i + 1;
  }
  if (times.empty() || times[0] <= 0)
    return InvalidArgument(pair.Name("verify_s"), ": the time of one token is missing");
  times.resize(measured);
  return times;
}

Result<spec::Phi> ReadPhi(const Reader& pair) {
  const Json* object = pair.object.Find("phi");
  if (object == nullptr || !object->is_object())
    return InvalidArgument(pair.Name("phi"), " is missing, or no object");
  const Reader reader{*object, pair.Name("phi")};
  spec::Phi phi;
  ASSIGN_OR_RETURN(phi.p, reader.Number("p", {0, 1}));
  ASSIGN_OR_RETURN(phi.a, reader.NumberOr("a", {}, 1));
  ASSIGN_OR_RETURN(phi.c, reader.NumberOr("c", {}, 0));
  RETURN_IF_ERROR(CheckPhi(phi, reader.where));
  return phi;
}

Result<offline::RecordedRound> ReadRound(const Json& value, const std::string& where) {
  if (!value.is_object()) return InvalidArgument(where, " is a ", value.type_name());
  const Reader reader{value, where};
  offline::RecordedRound round;
  ASSIGN_OR_RETURN(round.n, reader.Integer("n", 0, kDraftTokensMax));
  ASSIGN_OR_RETURN(round.k, reader.Integer("k", 0, round.n));
  round.rank = -1;
  if (value.Find("rank") != nullptr) {
    ASSIGN_OR_RETURN(round.rank, reader.Integer("rank", -1, offline::kRanksMax));
  }
  if (value.Find("confidence") == nullptr) return round;
  ASSIGN_OR_RETURN(const Json::Array* classes, reader.List("confidence"));
  for (const Json& entry : *classes) {
    ASSIGN_OR_RETURN(const double number,
                     ToNumber(entry, reader.Name("confidence"), {0, spec::kConfidenceClasses - 1}));
    round.confidence.push_back(static_cast<int>(number));
  }
  const auto known = base::IntSize(round.confidence);
  if (known != 0 && known != round.n && known != round.n + 1)
    return InvalidArgument(reader.Name("confidence"), " has ", known, " entries for ", round.n,
                           " tokens");
  return round;
}

// The rounds: the array of a report, or the objects on the lines.
Result<Json::Array> RoundsOf(const std::string& text, const std::string& path) {
  const auto whole = base::ParseJson(text);
  if (whole.ok() && whole->is_array()) return whole->as_array();
  if (whole.ok() && whole->Find("n") == nullptr) {
    const Json* rounds = whole->Find("rounds");
    if (rounds != nullptr && rounds->is_array()) return rounds->as_array();
    return InvalidArgument(path,
                           ": no \"rounds\"; `bench --spec --record-rounds --json` writes "
                           "them");
  }
  Json::Array out;
  int line = 0;
  for (std::size_t at = 0; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view item = std::string_view(text).substr(at, end - at);
    at = end + 1;
    if (item.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto value = base::ParseJson(item);
    if (!value.ok()) return value.status().Annotate(StrCat(path, ", line ", line + 1));
    out.push_back(*std::move(value));
  }
  return out;
}

}  // namespace

Status CheckPhi(const spec::Phi& phi, const std::string& where) {
  const double refused = phi.a * (1 - std::pow(phi.p, kDraftTokensMax)) + kDraftTokensMax * phi.c;
  if (refused <= 1 + kRounding) return OkStatus();
  return InvalidArgument(where, ": p ", phi.p, ", a ", phi.a, ", c ", phi.c,
                         " are no distribution: a (1 - p^20) + 20 c is ", refused,
                         ", and may be 1 at most");
}

Status CheckHits(const std::vector<double>& hits, const std::string& where) {
  const double sum = std::accumulate(hits.begin(), hits.end(), 0.0);
  if (sum <= 1 + kRounding) return OkStatus();
  return InvalidArgument(where, ": shares of the same tokens sum to ", sum, ", above 1");
}

Result<offline::PairModel> ReadPair(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path));
  const auto report = base::ParseJson(text);
  if (!report.ok()) return report.status().Annotate(path);
  const Json* object = report->Find("pair");
  if (object == nullptr || !object->is_object())
    return InvalidArgument(path,
                           ": no \"pair\": no report of `thermocline bench --spec --json`, or "
                           "one in which no draft was verified (--draft-fixed makes sure)");
  const Reader reader{*object, path + ": pair"};
  offline::PairModel pair;
  ASSIGN_OR_RETURN(pair.draft_token_s, reader.Number("draft_token_s", {}));
  ASSIGN_OR_RETURN(pair.verify_s, ReadTimes(reader));
  ASSIGN_OR_RETURN(pair.phi, ReadPhi(reader));
  ASSIGN_OR_RETURN(const Json::Array* hits, reader.List("correction_hits"));
  if (!hits->empty()) pair.correction_hits.clear();
  for (const Json& hit : *hits) {
    ASSIGN_OR_RETURN(const double share, ToNumber(hit, reader.Name("correction_hits"), {0, 1}));
    pair.correction_hits.push_back(share);
  }
  RETURN_IF_ERROR(CheckHits(pair.correction_hits, reader.Name("correction_hits")));
  ASSIGN_OR_RETURN(pair.bonus_hit, reader.NumberOr("bonus_hit", {0, 1}, pair.phi.p));
  const Range slowdown{.low = 0.1, .high = 100};
  ASSIGN_OR_RETURN(pair.draft_slowdown, reader.NumberOr("draft_slowdown", slowdown, 1));
  ASSIGN_OR_RETURN(pair.verify_slowdown, reader.NumberOr("verify_slowdown", slowdown, 1));
  ASSIGN_OR_RETURN(pair.round_overhead_s, reader.NumberOr("round_overhead_s", {}, 0));
  return pair;
}

Result<std::vector<offline::RecordedRound>> ReadRounds(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path));
  ASSIGN_OR_RETURN(const Json::Array list, RoundsOf(text, path));
  std::vector<offline::RecordedRound> rounds;
  for (std::size_t i = 0; i < list.size(); ++i) {
    ASSIGN_OR_RETURN(offline::RecordedRound round,
                     ReadRound(list[i], StrCat(path, ": round ", i + 1)));
    if (round.n > 0) rounds.push_back(std::move(round));
  }
  const auto known = [](const offline::RecordedRound& round) { return round.rank >= 0; };
  if (!std::any_of(rounds.begin(), rounds.end(), known))
    return InvalidArgument(path, ": no round with a draft and a guess of the token behind it");
  return rounds;
}

}  // namespace thermocline::tools
