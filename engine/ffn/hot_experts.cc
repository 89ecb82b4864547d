#include "engine/ffn/hot_experts.h"

#include <algorithm>
#include <cstring>

#include "engine/base/bytes.h"
#include "engine/base/index.h"

namespace thermocline::ffn {
namespace {

// The bytes of the matrices of one expert of a layer.
struct Parts {
  std::size_t gate, up, down;
  std::size_t all() const { return gate + up + down; }
};
Parts PartsOf(const model::ExpertWeights& w) {
  const std::size_t experts = std::max(1, w.router.weight.rows);
  return {w.gate.weight.bytes() / experts, w.up.weight.bytes() / experts,
          w.down.weight.bytes() / experts};
}

}  // namespace

HotExperts::HotExperts(Params params)
    : p_(std::move(params)),
      experts_(p_.config.experts.num_experts),
      has_(p_.hot.size() * experts_),
      places_(has_.size()) {
  for (std::size_t l = 0; l < p_.hot.size(); ++l)
    for (const int expert : p_.hot[l]) has_[l * experts_ + expert] = 1;
}

std::size_t HotExperts::bytes_each(int layer) const {
  const model::ExpertWeights& w = p_.weights.layers[layer].experts;
  return w.any() ? PartsOf(w).all() : 0;
}

std::size_t HotExperts::bytes() const {
  std::size_t sum = 0;
  for (int l = 0; l < base::IntSize(p_.hot); ++l) sum += p_.hot[l].size() * bytes_each(l);
  return sum;
}

Status HotExperts::ForEach(const Visit& visit) const {
  for (int l = 0; l < base::IntSize(p_.hot); ++l) {
    const std::vector<int>& ids = p_.hot[l];
    if (ids.empty()) continue;
    const model::ExpertWeights& w = p_.weights.layers[l].experts;
    const Parts parts = PartsOf(w);
    if (p_.flash != nullptr) {
      p_.flash->RequestForPrompt(l, ids);
      RETURN_IF_ERROR(p_.flash->Await());
    }
    for (const int expert : ids) {
      ExpertPlace place;
      if (p_.flash != nullptr) {
        const std::uint8_t* at = p_.flash->where(l)[expert];
        place = {at, at + p_.flash->up_ahead(), at + p_.flash->down_ahead()};
      } else {
        place = {w.gate.weight.data + expert * parts.gate, w.up.weight.data + expert * parts.up,
                 w.down.weight.data + expert * parts.down};
      }
      RETURN_IF_ERROR(visit(l, expert, place));
    }
    if (p_.flash != nullptr) p_.flash->EndLayer(l);
  }
  if (p_.flash != nullptr) p_.flash->EndStep(0);
  return OkStatus();
}

Status HotExperts::FixAddresses() {
  std::uint8_t* next = nullptr;
  if (p_.flash != nullptr) {
    ASSIGN_OR_RETURN(memory_, base::HugeBuffer::Allocate(std::max<std::size_t>(64, bytes())));
    next = base::Octets(memory_.data());
  }
  return ForEach([&](int layer, int expert, const ExpertPlace& from) {
    ExpertPlace place = from;
    if (p_.flash != nullptr) {
      const Parts parts = PartsOf(p_.weights.layers[layer].experts);
      const auto copy = [&](const std::uint8_t* data, std::size_t bytes) {
        std::memcpy(next, data, bytes);
        return std::exchange(next, next + bytes);
      };
      place.gate = copy(from.gate, parts.gate);
      place.up = copy(from.up, parts.up);
      place.down = copy(from.down, parts.down);
    }
    places_[layer * experts_ + expert] = place;
    return OkStatus();
  });
}

}  // namespace thermocline::ffn
