// The tensors that a model file must hold, and their locations in memory.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "engine/model/weights/weights.h"

namespace thermocline::model {

// The planned location of one tensor in the buffer.
struct WeightSlot {
  const TensorInfo* tensor = nullptr;
  std::size_t offset = 0;                   // bytes into the buffer
  kernels::PackedMatrix* matrix = nullptr;  // for matrices in panels, and neurons in rows
  kernels::RowMatrix* rows = nullptr;       // for down_rows
  Layout layout = Layout::kPanels;
  const float** vector = nullptr;  // for norms and biases
  int stage = -1;                  // -1: read at load; else loaded into that stage later

  bool is_matrix() const { return matrix != nullptr || rows != nullptr; }
  kernels::DType type() const { return matrix != nullptr ? matrix->type : rows->type; }
  int cols() const { return matrix != nullptr ? matrix->cols : rows->cols; }
};

// Borrows all its parameters. Sets the types and shapes of the matrices of `weights`, without data.
class WeightPlan {
 public:
  WeightPlan(const ModelFile& model, const LoadWeightsOptions& options, Weights& weights)
      : model_(model), options_(options), weights_(weights) {}

  // Errors as LoadWeights.
  Status Make();
  const std::vector<WeightSlot>& slots() const { return slots_; }
  std::size_t bytes() const { return bytes_; }
  // The table from which a token reads a row; null if there is none.
  const TensorInfo* layer_table() const { return layer_table_; }

 private:
  Status Shared();
  Status SharedEncoder();
  Status DenseModules();
  Status Layer(int layer);
  Status Attention(int index, const std::string& prefix, LayerWeights& layer);
  // In weight_plan_latent.cc: projections to the latent vector and from it.
  Status Latent(const std::string& prefix, LayerWeights& layer);
  // A matrix [rows, cols] for each head.
  Status HeadsOf(const std::string& module, int rows, int cols, Linear& out);
  // In weight_plan_recurrent.cc.
  Status Recurrent(const std::string& prefix, RecurrentWeights& weights);
  Status DeltaNet(const std::string& prefix, RecurrentWeights& weights);
  Status Mamba2(const std::string& prefix, RecurrentWeights& weights);
  // A vector of n elements, with any number of rows.
  Status Flat(const std::string& name, int n, const float*& out);
  // In weight_plan_altup.cc.
  Status SharedAltUp();
  Status AltUp(const std::string& prefix, AltUpWeights& weights);
  // The layers' own embeddings: their tables, and the parts of a layer that use them.
  Status SharedLayerInputs();
  Status LayerInput(const std::string& prefix, AltUpWeights& weights);
  // A matrix [size, size] for each stream but the first.
  Status StreamsOf(const std::string& module, int streams, int size, bool held, Linear& out);
  // True for a tensor that the file may hold, but that is not read.
  bool IsUnread(const std::string& name) const;
  // Rejects a set of biases that belongs to another family, whose other tensors may be the same.
  Status CheckBiases(const std::string& prefix) const;
  // InvalidArgument names the first of these tensors that the file lacks.
  Status Require(const std::string& prefix, std::initializer_list<const char*> tensors) const;
  Status FeedForward(int index, const std::string& prefix, LayerWeights& layer);
  // In weight_plan_experts.cc: the router, all experts, the shared one.
  Status Experts(const std::string& prefix, ExpertWeights& experts);
  Status ExpertMatrices(const std::string& prefix, ExpertWeights& experts);
  Status SharedExpert(const std::string& prefix, ExpertWeights& experts);
  // A matrix [rows, cols] for each expert.
  Status ExpertsOf(const std::string& module, int rows, int cols, Layout layout, Linear& out);
  // The neuron-major down projection, and its bias.
  Status ExpertDownRows(const std::string& prefix, ExpertWeights& experts);
  Status NeuronsOf(const std::string& module, int neurons, bool held, Layout layout,
                   NeuronMatrix& out);
  Status DownRows(const std::string& name, int rows, kernels::RowMatrix& out);
  // Plans a predictor; all layers must have one, or none.
  Status LowRankOf(const std::string& prefix, LowRankWeights& out);
  Status LinearOf(const std::string& module, int rows, int cols, bool held, Linear& out);
  Status NormOf(const std::string& module, int n, NormWeights& out);
  // `slabs`: the third dimension, which divides the rows.
  Result<const TensorInfo*> Find(const std::string& name, int rows, int cols, int slabs = 1);
  Status Matrix(const std::string& name, int rows, int cols, bool held, kernels::PackedMatrix& out);
  kernels::DType TypeInMemory(const TensorInfo& tensor) const;
  // A vector of n elements; `slabs`: its number of rows.
  Status Vector(const std::string& name, int n, const float*& out);
  Status OptionalVector(const std::string& name, int n, const float*& out);
  void Reserve(WeightSlot slot, std::size_t bytes);
  // Places the slots from `first` on, which were planned from offset 0.
  void Place(int layer, std::size_t first, std::size_t bytes);
  void PlaceStages();
  bool IsInputMajorCopy(std::string_view name) const;
  Status RefuseStrangers() const;

  const ModelFile& model_;
  const LoadWeightsOptions& options_;
  Weights& weights_;
  const TensorInfo* layer_table_ = nullptr;
  LayerParts parts_;  // of the current layer
  std::vector<WeightSlot> slots_;
  std::set<std::string> used_;
  std::size_t end_ = 0;    // of the planned slots, from the layer's begin
  std::size_t bytes_ = 0;  // of all layers
  std::vector<std::size_t> stage_bytes_;
};

}  // namespace thermocline::model
