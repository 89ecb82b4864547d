#include "engine/store/heat.h"

#include <array>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/index.h"
#include "engine/base/ratio.h"

namespace thermocline::store {
namespace {

constexpr float kCold = -std::numeric_limits<float>::infinity();
constexpr std::int64_t kLowerAfter = 256;  // half-lives

// log2(1 + 2^-d) by linear interpolation, within 6e-6; the logarithm and the power would take most
// of Touch's time.
class SoftPlus {
 public:
  SoftPlus() {
    for (int i = 0; i < base::IntSize(table_); ++i)
      table_[i] = static_cast<float>(std::log2(1 + std::exp2(-base::Ratio(i, kSteps))));
  }
  float operator()(float d) const {
    if (!(d < kEnd)) return 0;
    const float at = d * kSteps;
    const auto i = static_cast<std::size_t>(at);
    return table_[i] + (at - static_cast<float>(i)) * (table_[i + 1] - table_[i]);
  }

 private:
  static constexpr int kSteps = 64, kEnd = 24;
  std::array<float, kSteps * kEnd + 2> table_;
};

float LogSum(float a, float b) {
  static const SoftPlus soft_plus;
  return a > b ? a + soft_plus(a - b) : b + soft_plus(b - a);
}

}  // namespace

HeatOrder::HeatOrder(const Params& params)
    : half_life_(params.half_life),
      cached_max_(params.cached_max),
      heat_(params.entries, kCold),
      last_use_(params.entries, -1) {
  CHECK(params.half_life > 0 && params.entries < kNone);
  heap_.reserve(cached_max_);
  held_.reserve(cached_max_);
}

void HeatOrder::Warm(std::uint32_t entry, double frequency) {
  // The sum of frequency * 2^(-age / half_life) over all ages.
  const double sum = frequency / (1 - std::exp2(-1 / half_life_));
  if (sum > 0)
    heat_[entry] = LogSum(heat_[entry], UseAt(now_) + static_cast<float>(std::log2(sum)));
}

void HeatOrder::Touch(std::uint32_t entry, std::int64_t now) {
  if (last_use_[entry] == now) return;
  last_use_[entry] = static_cast<std::int32_t>(now);
  now_ = now;
  const float use = UseAt(now);
  if (use >= static_cast<float>(kLowerAfter)) {
    LowerAll(use);
    base_ = now;
    heat_[entry] = LogSum(heat_[entry], 0);
    return;
  }
  heat_[entry] = LogSum(heat_[entry], use);
}

void HeatOrder::LowerAll(float by) {
  for (float& heat : heat_) heat -= by;
  for (Item& item : heap_) item.heat -= by;  // rounding is monotonic, so the order stays
  for (Item& item : held_) item.heat -= by;
}

void HeatOrder::Insert(std::uint32_t entry) {
  CHECK_LT(cached(), cached_max_);
  heap_.push_back({heat_[entry], entry});
  SiftUp(heap_.size() - 1);
}

void HeatOrder::Release(std::uint32_t entry, std::int64_t before) {
  last_use_[entry] = static_cast<std::int32_t>(before);
  held_since_ = -1;
}

std::uint32_t HeatOrder::Evict(std::int64_t since) {
  return FindColdest(since) ? PopTop().entry : kNone;
}

std::uint32_t HeatOrder::EvictFor(std::uint32_t entry, std::int64_t now) {
  if (!FindColdest(now) || heap_.front().heat >= LogSum(heat_[entry], UseAt(now))) return kNone;
  return PopTop().entry;
}

bool HeatOrder::FindColdest(std::int64_t since) {
  if (since != held_since_) ReturnHeld();
  held_since_ = since;
  while (!heap_.empty()) {
    MendTop();
    if (last_use_[heap_.front().entry] < since) return true;
    held_.push_back(PopTop());
  }
  return false;
}

void HeatOrder::ReturnHeld() {
  for (const Item& item : held_) {
    heap_.push_back(item);
    SiftUp(heap_.size() - 1);
  }
  held_.clear();
}

// A stored value is at most the entry's heat, so a top that is up to date is the coldest of all.
void HeatOrder::MendTop() {
  while (heap_.front().heat < heat_[heap_.front().entry]) {
    heap_.front().heat = heat_[heap_.front().entry];
    SiftDown(0);
  }
}

HeatOrder::Item HeatOrder::PopTop() {
  const Item top = heap_.front();
  heap_.front() = heap_.back();
  heap_.pop_back();
  if (!heap_.empty()) SiftDown(0);
  return top;
}

void HeatOrder::SiftDown(std::size_t at) {
  const Item item = heap_[at];
  for (std::size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
    if (child + 1 < heap_.size() && heap_[child + 1].heat < heap_[child].heat) ++child;
    if (item.heat <= heap_[child].heat) break;
    heap_[at] = heap_[child];
    at = child;
  }
  heap_[at] = item;
}

void HeatOrder::SiftUp(std::size_t at) {
  const Item item = heap_[at];
  for (; at > 0; at = (at - 1) / 2) {
    const std::size_t parent = (at - 1) / 2;
    if (heap_[parent].heat <= item.heat) break;
    heap_[at] = heap_[parent];
  }
  heap_[at] = item;
}

}  // namespace thermocline::store
