// Layers whose mixer is not attention, as data: their kinds and the sizes of their state.
//
// A recurrent mixer keeps, for each sequence, the last columns of a short convolution and, except
// for a plain convolution, a state [key_dim, value_dim] of each head (kernels/recurrence.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace thermocline::model {

// The part of a layer that reads other tokens. kNone: the layer is only a feed-forward network.
enum class Mixer : std::uint8_t { kAttention, kShortConv, kDeltaNet, kMamba2, kNone };

struct RecurrentConfig {
  std::vector<Mixer> mixers;       // [L]; empty: attention in every layer
  std::vector<bool> networks;      // [L] the layers with a feed-forward network; empty: all
  Mixer kind = Mixer::kAttention;  // of every recurrent layer; kAttention: none
  int taps = 0;                    // tokens that the convolution sees, including the current one
  int key_heads = 0;               // delta net: heads of q and k; Mamba-2: groups of B and C
  int heads = 0;                   // heads of the state
  int key_dim = 0;                 // rows of a head's state
  int value_dim = 0;               // columns of a head's state
  bool tiled = false;  // head j reads key head j % key_heads, else j * key_heads / heads

  bool any() const { return kind != Mixer::kAttention; }
  int inner() const { return heads * value_dim; }
  // Columns of the convolution.
  int channels(int hidden_size) const {
    return kind == Mixer::kShortConv ? hidden_size : inner() + 2 * key_heads * key_dim;
  }
  int key_head_of(int head) const { return tiled ? head % key_heads : head / (heads / key_heads); }
  Mixer of(int layer) const { return mixers.empty() ? Mixer::kAttention : mixers[layer]; }
  bool has_state(int layer) const { return any() && of(layer) == kind; }
  bool has_network(int layer) const { return networks.empty() || networks[layer]; }
  int layers() const {
    return any() ? static_cast<int>(std::count(mixers.begin(), mixers.end(), kind)) : 0;
  }
};

}  // namespace thermocline::model
