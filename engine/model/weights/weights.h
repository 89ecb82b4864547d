// The weights of a model, packed into panels on huge pages. Const after load.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/huge_buffer.h"
#include "engine/base/worker_pool.h"
#include "engine/model/file_rows.h"
#include "engine/model/model_file.h"
#include "kernels/rows.h"
#include "kernels/types.h"

namespace thermocline::model {

// A matrix and the bias of its product.
struct Linear {
  kernels::PackedMatrix weight;
  const float* bias = nullptr;  // [rows] or null
};

struct NormWeights {
  const float* weight = nullptr;  // null: the layer has no such norm
  const float* bias = nullptr;    // null: none
  float eps = 0;                  // 0: the model's
};

// The layout of the rows of a matrix in memory; both layouts have the same bytes and can be
// converted in place.
enum class Layout { kPanels, kRows };

// A matrix of one row for each neuron.
struct NeuronMatrix {
  Linear linear;  // the panels, or their location
  Layout layout = Layout::kPanels;
  // Locations of rows that are not contiguous, as in kernels::RowMatrix.
  const std::uint8_t* const* where = nullptr;
  std::size_t ahead = 0;

  // Requires: layout is kRows.
  kernels::RowMatrix rows() const {
    const kernels::PackedMatrix& w = linear.weight;
    return {w.type, w.rows, w.cols, w.data, where, ahead};
  }
};

// A predictor from the model file: a neuron is active if fc2 relu(fc1 x) >= threshold.
// Source: PowerInfer's files.
struct LowRankWeights {
  Linear fc1;           // [R, D]
  Linear fc2;           // [F, R]
  float threshold = 0;  // of the logits
};

// The weights of latent attention, whose queries' last projection is LayerWeights::q; n, r, c, v as
// in model/latent_attention.h.
struct LatentWeights {
  Linear q_a;  // [q_lora_rank, D]; no weights if queries come from the input
  NormWeights q_a_norm;
  Linear kv_a;  // [c + r, D]
  NormWeights kv_a_norm;
  Linear k_b;  // [H c, n], a head's below the other's
  Linear v_b;  // [H v, c]
};

// The weights of a recurrent mixer (model/recurrent_config.h). C: channels of the convolution; H
// heads of V values; K taps.
struct RecurrentWeights {
  Linear in;    // delta net: [C, D] q, k, v; Mamba-2: [H V + C + H, D] z, x, B, C, dt; else [3D, D]
  Linear gate;  // delta net: [H V, D] z
  Linear alpha;                      // delta net: [H, D] of the decay
  Linear beta;                       // delta net: [H, D]
  Linear beta_alpha;                 // instead of both: [2H, D] beta, then alpha, of each key head
  Linear out;                        // [D, H V]; convolution alone: [D, D]
  const float* conv = nullptr;       // [C, K]
  const float* conv_bias = nullptr;  // [C] or null
  const float* decay = nullptr;      // [H] -exp(A_log)
  const float* step_bias = nullptr;  // [H] of dt
  const float* skip = nullptr;       // [H] Mamba-2: factor of x, which is added to the output
  NormWeights norm;                  // delta net: [V]; Mamba-2: [H V]
};

// Consecutive matrices of all experts, and of the shared expert, which every token passes through.
// e: an expert, E of them with f neurons; fs: neurons of the shared one.
struct ExpertWeights {
  Linear router;                        // [E, D]
  const float* router_scale = nullptr;  // [D] of the normed input (RouterInput), or null
  const float* weight_scale = nullptr;  // [E] factors of the chosen experts' weights, or null
  const float* choice_bias = nullptr;   // [E] added for selection only, or null
  Linear gate;                          // [E f, D], if the architecture is gated
  Linear up;                            // [E f, D]
  Linear down;                          // [E D, f]; only its bias if there is down_rows
  // [E f, D] neuron-major down, if the file has it; then up, and gate, may be in kRows.
  kernels::RowMatrix down_rows;
  Layout gate_layout = Layout::kPanels, up_layout = Layout::kPanels;
  Linear shared_gate;                    // [fs, D]; no weights if there is no shared expert
  Linear shared_up;                      // [fs, D]
  Linear shared_down;                    // [D, fs]
  const float* shared_switch = nullptr;  // [D], or null

  bool any() const { return router.weight.rows > 0; }
  // Expert e's part of a matrix of all experts. Requires: an expert's `rows` fill panels exactly.
  static kernels::PackedMatrix Of(const kernels::PackedMatrix& all, int expert, int rows) {
    const std::uint8_t* data =
        all.data == nullptr ? nullptr : all.panel(expert * (rows / kernels::kPanelRows));
    return {.type = all.type, .rows = rows, .cols = all.cols, .data = data};
  }
  // Weight bytes of all experts, and those read by a step whose tokens chose `used` experts.
  std::size_t bytes() const;
  std::size_t bytes_per_step(int used) const;
};

// The weights of a layer with AltUp (model/altup.h); N streams, a rank R of laurel, E of the
// layer's embedding.
struct AltUpWeights {
  Linear router;  // [N, D]
  NormWeights router_norm;
  Linear predict;                        // [N N, N]
  Linear correct;                        // [N, N]
  const float* correct_scale = nullptr;  // [D]
  Linear laurel_left;                    // [R, D]
  Linear laurel_right;                   // [D, R]
  NormWeights laurel_norm;
  Linear input_gate;  // [E, D]
  Linear input_proj;  // [D, E]
  NormWeights input_norm;
};

// Also of families with the layers' own embeddings alone.
struct SharedAltUpWeights {
  Linear begin;                  // [(N - 1) D, D] initial streams, consecutive matrices
  Linear end;                    // [(N - 1) D, D]
  Linear layer_inputs;           // [L E, D]
  NormWeights layer_input_norm;  // [E]
  std::unique_ptr<FileRows> layer_embedding;  // [tokens, L E], in the file
};

struct LayerWeights {
  NormWeights attn_norm;         // [D] on attention's input, if the family has it
  NormWeights attn_second_norm;  // [D] for attention only, in parallel blocks
  Linear q;  // [H*Dh, D]; latent: [H (n + r), q_lora_rank or D]; with gates [2 H*Dh, D], each head
             // followed by its gate
  Linear attn_gate;  // [H*Dh, D] or [H, D] of attention's output (AttentionGates); no weights: none
  Linear k;          // [K*Dh, D]; no weights if another layer's keys are read
  Linear v;          // [K*Dh, D]
  NormWeights q_norm;            // [Dh]
  NormWeights k_norm;            // [Dh]
  LatentWeights latent;          // instead of k and v
  RecurrentWeights recurrent;    // instead of attention, in recurrent layers
  AltUpWeights altup;            // if the family has it
  Linear attn_output;            // [D, H*Dh]; latent: [D, H v]
  const float* sinks = nullptr;  // [H], or null
  NormWeights attn_sub_norm;     // [H*Dh] on the input of attn_output, if the family has it
  NormWeights attn_post_norm;    // [D] on attention's output, if the family has it
  NormWeights ffn_norm;          // [D]
  NormWeights ffn_sub_norm;      // [F] on the input of down
  NormWeights ffn_post_norm;     // [D]
  // With experts beside a dense network: norms on its output, on the experts' input and on theirs.
  NormWeights dense_post_norm, expert_norm, expert_post_norm;  // [D]
  const float* out_scale = nullptr;  // [1] factor of the layer's output, or null
  NeuronMatrix gate;                 // [F, D], if the architecture is gated
  NeuronMatrix up;                   // [F, D]
  Linear down;                       // [D, F]; no weight if there is down_rows
  kernels::RowMatrix down_rows;      // [F, D] neuron-major down, if the file has it
  LowRankWeights low_rank;           // no weights if the file has none
  ExpertWeights experts;             // instead of gate, up and down, or beside them

  // True if the layer has a dense network.
  bool has_network() const { return down.weight.rows > 0 || down_rows.rows > 0; }
};

// The head of an encoder that ranks pairs of texts (exec/rank_head.h).
struct RankWeights {
  Linear dense;      // [D, D]
  NormWeights norm;  // [D], or none
  Linear output;     // [1, D]
};

// The most dense modules behind a pooling (exec/vector_head.h).
inline constexpr std::size_t kDenseModules = 2;

struct Weights {
  kernels::PackedMatrix token_embedding;     // [V, D]
  kernels::PackedMatrix position_embedding;  // [positions + offset, D], if positions are learned
  kernels::PackedMatrix type_embedding;      // [types, D] of encoders: a text has type 0; or empty
  NormWeights embedding_norm;                // [D] of encoders
  std::vector<LayerWeights> layers;          // [L]
  NormWeights output_norm;                   // [D]
  Linear output;                             // [V, D], the embedding if tied
  SharedAltUpWeights altup;                  // if the family has it
  RankWeights rank;                          // of encoders that rank
  std::array<Linear, kDenseModules> dense;   // of vectors; without rows: absent
  base::HugeBuffer memory;                   // owns all of the above

  // The part of `memory` with a layer's weights, whose bytes do not depend on their location.
  struct Image {
    std::size_t begin = 0, bytes = 0;  // multiples of kImageAlignment
    int stage = -1;                    // shared with the other layers of that stage; -1: separate
  };
  std::vector<Image> images;  // [L]

  std::span<std::byte> LayerImage(int layer) {
    const Image& image = images[layer];
    return {memory.data() + image.begin, image.bytes};
  }

  // Releases the memory of a matrix; its type and shape stay. Requires: `matrix` is one of these,
  // and shares no bytes with another matrix.
  void GiveBack(kernels::PackedMatrix& matrix) {
    if (matrix.data == nullptr) return;
    memory.GiveBack(matrix.data, matrix.bytes(), base::HugeBuffer::Pages::kSmall);
    matrix.data = nullptr;
  }

  bool has_low_rank() const { return !layers.empty() && layers[0].low_rank.fc1.weight.rows > 0; }
  bool has_down_rows() const { return !layers.empty() && FirstNetwork().down_rows.rows > 0; }
  // Returns the first layer with a dense network, or layer 0 if there is none.
  const LayerWeights& FirstNetwork() const {
    for (const LayerWeights& layer : layers)
      if (layer.has_network()) return layer;
    return layers[0];
  }

  // Weight bytes that a step reads if nothing is skipped, without predictors. `experts`: the number
  // of experts that its tokens chose, in a layer of experts.
  std::size_t bytes_per_step(int experts) const;
};

inline constexpr std::size_t kImageAlignment = 4096;

// The parts of a layer that are held in memory. The others have a type and a shape, but no data. In
// a mixture `rest` means the experts, and everything else counts as attention.
struct LayerParts {
  bool attention = true;
  bool deciding = true;   // the rows that decide: gate, or up without a gate
  bool rest = true;       // up, if there is a gate, and down
  bool predictor = true;  // the low-rank predictor
  bool vectors = true;    // norms and biases; false if no part of the layer is used
};
inline constexpr LayerParts kNoParts = {false, false, false, false, false};

// The same for the weights outside of the layers.
struct SharedParts {
  bool embeddings = true;
  bool head = true;  // if it differs from the embedding; the last norm always is
};

struct LoadWeightsOptions {
  bool verify = false;  // rejects NaN and infinite scales and floats; reads every byte again
  // The type of the head if it is a float type in the file: kQ8_0 halves its bytes, at a loss.
  bool quantize_head = false;
  Layout gate = Layout::kPanels;
  Layout up = Layout::kPanels;
  std::function<LayerParts(int)> parts = {};  // by layer; empty = everything
  SharedParts shared = {};
  bool log_conversions = true;
  // The stage of memory that a layer's weights are streamed through, from 0; -1 = the layer has its
  // own memory, and is read at load. Empty = -1. Layers of a stage share its bytes, and are not
  // read at load.
  std::function<int(int)> stage = {};
  std::function<void(double)> on_progress =
      {};  // completed share, from one thread at a time; may be empty
  const std::atomic<bool>* cancelled = nullptr;  // true: reading ends as Cancelled
};

// Reads and packs every tensor, on `pool`'s threads. InvalidArgument or Unimplemented name the
// tensor, the expected and the actual shape or type; DataLoss (verify) the row. Tensors of another
// architecture are rejected, because ignoring them would compute a different model.
Result<std::unique_ptr<Weights>> LoadWeights(const ModelFile& model, base::WorkerPool& pool,
                                             const LoadWeightsOptions& options);

// The sizes that LoadWeights needs: bytes of memory, and each layer's image. Errors as LoadWeights.
struct WeightSizes {
  std::size_t bytes = 0;
  std::vector<std::size_t> images;  // [L]
};
Result<WeightSizes> MeasureWeights(const ModelFile& model, const LoadWeightsOptions& options);

// Converts `matrix` to the layout in place; without data only sets the field.
void SetLayout(NeuronMatrix& matrix, Layout layout, base::WorkerPool& pool);

}  // namespace thermocline::model
