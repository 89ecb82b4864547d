// The tensors of a folder by name, and which of them belong to others.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/model/huggingface/safetensors.h"
#include "engine/model/model_file.h"

namespace thermocline::model {

class StoredSet {
 public:
  // Both must outlive this.
  StoredSet(const std::vector<StoredTensor>& tensors, const ModelFile& model) : model_(model) {
    for (const StoredTensor& tensor : tensors) stored_[tensor.name] = &tensor;
  }

  bool Has(const std::string& name) const { return stored_.contains(name); }
  // Marks a tensor as part of another; null: there is none.
  const StoredTensor* Use(const std::string& name);
  bool IsUsed(const std::string& name) const { return used_.contains(name); }

  // {slabs, rows, cols}; a list is one row. InvalidArgument, DataLoss: not such a shape, or the
  // tensor is not all of its bytes inside its file.
  Result<std::array<std::int64_t, 3>> ShapeOf(const StoredTensor& tensor, int element_bytes) const;
  // A tensor of one number above 0, of a type of ScaleBytes.
  Result<float> NumberOf(const StoredTensor& tensor) const;
  Status Read(const StoredTensor& tensor, std::span<std::byte> out) const;

 private:
  const ModelFile& model_;
  std::map<std::string, const StoredTensor*> stored_;
  std::set<std::string> used_;
};

}  // namespace thermocline::model
