#include "engine/store/device_curve.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"

namespace thermocline::store {
namespace {

constexpr int kVersion = 1;

using Row = std::array<double, Curve::kDepths.size()>;
double Best(const Row& row) { return *std::max_element(row.begin(), row.end()); }

template <typename Values>
Json ToArray(const Values& values) {
  Json::Array array;
  for (const auto value : values) array.push_back(value);
  return array;
}

// `count` numbers that are finite and not negative.
const Json::Array* Numbers(const Json* json, std::size_t count) {
  if (json == nullptr || !json->is_array() || json->as_array().size() != count) return nullptr;
  for (const Json& value : json->as_array()) {
    if (!value.is_number() || !std::isfinite(value.as_double()) || value.as_double() < 0)
      return nullptr;
  }
  return &json->as_array();
}

template <typename Values>
bool IsSame(const Json* json, const Values& values) {
  const Json::Array* numbers = Numbers(json, values.size());
  return numbers != nullptr &&
         std::equal(numbers->begin(), numbers->end(), values.begin(),
                    [](const Json& a, auto b) { return a.as_double() == static_cast<double>(b); });
}

}  // namespace

Curve::Curve(Source source, const Table& table, double sequential_bytes_per_s)
    : source_(std::move(source)), table_(table), sequential_bytes_per_s_(sequential_bytes_per_s) {
  CHECK(std::any_of(table.begin(), table.end(), [](const Row& row) { return Best(row) > 0; }));
}

int Curve::BestDepth(double bytes) const {
  const Row* nearest = nullptr;
  double distance_min = 0;
  for (std::size_t i = 0; i < kChunks.size(); ++i) {
    const double distance = std::abs(std::log(bytes / kChunks[i]));
    if (Best(table_[i]) <= 0 || (nearest != nullptr && distance >= distance_min)) continue;
    nearest = &table_[i];
    distance_min = distance;
  }
  const double enough = 0.95 * Best(*nearest);
  const auto first =
      std::find_if(nearest->begin(), nearest->end(), [&](double rate) { return rate >= enough; });
  return kDepths[first - nearest->begin()];
}

double Curve::Bandwidth(double bytes) const {
  double below_bytes = 0, below = 0;  // the last measured size up to `bytes`
  for (std::size_t i = 0; i < kChunks.size(); ++i) {
    if (Best(table_[i]) <= 0) continue;
    const double chunk = kChunks[i], bandwidth = chunk * Best(table_[i]);
    if (chunk >= bytes) {
      if (below <= 0) return bandwidth * bytes / chunk;
      const double share = std::log(bytes / below_bytes) / std::log(chunk / below_bytes);
      return below * std::pow(bandwidth / below, share);
    }
    below_bytes = chunk;
    below = bandwidth;
  }
  return below;
}

Json Curve::ToJson() const {
  Json::Array rows;
  for (const Row& row : table_) rows.push_back(ToArray(row));
  return Json::Object{{"version", kVersion},
                      {"device", source_.device},
                      {"method", source_.method},
                      {"direct", source_.direct},
                      {"alignment", source_.alignment},
                      {"file_bytes", source_.file_bytes},
                      {"chunk_bytes", ToArray(kChunks)},
                      {"depths", ToArray(kDepths)},
                      {"reads_per_s", std::move(rows)},
                      {"sequential_bytes_per_s", sequential_bytes_per_s_}};
}

Result<Curve> Curve::FromJson(const Json& json) {
  const Status damaged = base::DataLoss("no curve of a device, or one of another version");
  const auto find = [&](const char* key) { return json.Find(key); };
  const Json* version = find("version");
  if (version == nullptr || !version->is_int() || version->as_int() != kVersion) return damaged;
  if (!IsSame(find("chunk_bytes"), kChunks) || !IsSame(find("depths"), kDepths)) return damaged;
  const Json *device = find("device"), *method = find("method"), *direct = find("direct"),
             *alignment = find("alignment"), *bytes = find("file_bytes"),
             *sequential = find("sequential_bytes_per_s"), *rows = find("reads_per_s");
  if (device == nullptr || !device->is_string() || method == nullptr || !method->is_string() ||
      direct == nullptr || !direct->is_bool() || alignment == nullptr || !alignment->is_int() ||
      bytes == nullptr || !bytes->is_int() || sequential == nullptr || !sequential->is_number() ||
      rows == nullptr || !rows->is_array() || rows->as_array().size() != kChunks.size())
    return damaged;
  Table table{};
  double best = 0;
  for (std::size_t i = 0; i < kChunks.size(); ++i) {
    const Json::Array* row = Numbers(&rows->as_array()[i], kDepths.size());
    if (row == nullptr) return damaged;
    std::transform(row->begin(), row->end(), table[i].begin(),
                   [](const Json& rate) { return rate.as_double(); });
    best = std::max(best, Best(table[i]));
  }
  if (best <= 0 || !(sequential->as_double() > 0)) return damaged;
  return Curve({.device = device->as_string(),
                .method = method->as_string(),
                .direct = direct->as_bool(),
                .alignment = static_cast<std::size_t>(alignment->as_int()),
                .file_bytes = static_cast<std::uint64_t>(bytes->as_int())},
               table, sequential->as_double());
}

}  // namespace thermocline::store
