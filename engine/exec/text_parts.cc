#include "engine/exec/text_parts.h"

#include <algorithm>

#include "engine/base/index.h"
#include "engine/nn/offset.h"

namespace thermocline::exec {

Result<int> TextParts::Forward(std::span<const int> text, nn::KvCache& cache,
                               TextProgress& progress, int most) {
  const int length = base::IntSize(text);
  const bool whole = length <= most && progress.at == 0 && !progress.stored;
  const bool computes = whole || progress.stored;
  const bool last = computes && progress.layer == p_.config.num_hidden_layers - 1;
  const int count = std::min(most, length - progress.at);
  p_.step.Clear();
  p_.step.AddOfText(text, progress.at, count, cache, p_.attention.TokensOfTile(count));
  p_.workspace.Cover(length);
  progress.residual.resize(nn::Offset(length, p_.config.hidden_size));
  RETURN_IF_ERROR(Layer(progress, whole));
  progress.at += count;
  if (progress.at < length) return last ? count : 0;
  progress.at = 0;
  progress.layer += computes ? 1 : 0;
  progress.stored = !computes;
  return last ? count : 0;
}

Status TextParts::Layer(TextProgress& progress, bool whole) {
  const bool computes = whole || progress.stored;
  float* const rows = progress.residual.data() + nn::Offset(progress.at, p_.config.hidden_size);
  float* const residual = p_.workspace.residual.data();
  const auto size = nn::Offset(p_.step.count(), p_.config.hidden_size);
  const bool begins = progress.layer == 0 && !progress.stored;
  if (begins) {
    RETURN_IF_ERROR(p_.embed());
  } else {
    std::copy_n(rows, size, residual);
  }
  if (!computes) {
    RETURN_IF_ERROR(p_.store(progress.layer));
    if (!begins) return OkStatus();  // the residual is as it was
  } else {
    RETURN_IF_ERROR(p_.compute(progress.layer,
                               whole ? AttentionBlock::Keys::kNew : AttentionBlock::Keys::kStored));
  }
  std::copy_n(residual, size, rows);
  return OkStatus();
}

}  // namespace thermocline::exec
