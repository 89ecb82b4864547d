#include "engine/gpu/device_layer_forward.h"

namespace thermocline::gpu {

DeviceLayerForward::DeviceLayerForward(const Params& p, DeviceArena& arena)
    : model_(p.attention.model),
      dense_(model_),
      step_(p.step),
      taps_(p.taps),
      ffn_(p.ffn),
      shared_(p.shared),
      attention_(p.attention, arena) {
  const int t = p.attention.tokens_max, d = model_.config().hidden_size;
  AddActivations(arena, t, d, &hidden_);
  if (!model_.config().architecture->parallel_block) return;
  arena.Add(&attention_out_, Area(t, d));
  arena.Add(&ffn_out_, Area(t, d));
}

Status DeviceLayerForward::Put(int layer, int tokens, FfnMode mode,
                               const DeviceSharedFfn::OnStream& serve) {
  const model::LayerWeights& w = model_.layer(layer).dense;
  float* residual = step_.residual();
  const bool own_norm = w.attn_second_norm.weight != nullptr;
  RETURN_IF_ERROR(
      dense_.Norm(own_norm ? w.attn_second_norm : w.attn_norm, residual, tokens, hidden_));
  if (!model_.config().architecture->parallel_block) {
    RETURN_IF_ERROR(Attention(layer, tokens, residual, true));
    RETURN_IF_ERROR(dense_.Norm(w.ffn_norm, residual, tokens, hidden_));
    return FeedForward(layer, tokens, mode, {residual, true}, serve);
  }
  RETURN_IF_ERROR(Attention(layer, tokens, attention_out_, false));
  if (own_norm) RETURN_IF_ERROR(dense_.Norm(w.attn_norm, residual, tokens, hidden_));
  RETURN_IF_ERROR(FeedForward(layer, tokens, mode, {ffn_out_, false}, serve));
  RETURN_IF_ERROR(dense_.Add(residual, attention_out_, tokens));
  return dense_.Add(residual, ffn_out_, tokens);
}

Status DeviceLayerForward::Attention(int layer, int tokens, float* out, bool accumulate) {
  return attention_.Put(layer, {hidden_, step_.positions(), step_.tables(), tokens}, out,
                        accumulate);
}

Status DeviceLayerForward::FeedForward(int layer, int tokens, FfnMode mode,
                                       const DeviceFfn::Output& out,
                                       const DeviceSharedFfn::OnStream& serve) {
  const DeviceFfn::Input input{hidden_, step_.residual(), tokens};
  RETURN_IF_ERROR(taps_.Put(layer, hidden_.x, input.residual));
  return model_.layer(layer).shared ? shared_->Put(layer, mode, input, out, serve)
                                    : ffn_.Run(layer, mode, input, out);
}

}  // namespace thermocline::gpu
