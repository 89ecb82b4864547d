// Builds the metadata section of a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model_file.h"

namespace thermocline::model {

// The alignment of tensors in the GGUF files that we write.
inline constexpr std::uint64_t kGgufAlignment = 32;
inline constexpr std::uint64_t GgufPadded(std::uint64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

// Not thread-safe. Keys keep their order.
class MetadataBuilder {
 public:
  void Uint(const std::string& key, std::uint32_t value) {
    Key(key, 4);
    Raw(value);
  }
  void Float(const std::string& key, float value) {
    Key(key, 6);
    Raw(value);
  }
  void Bool(const std::string& key, bool value) {
    Key(key, 7);
    Raw<std::uint8_t>(value);
  }
  void String(const std::string& key, const std::string& value) {
    Key(key, 8);
    Text(value);
  }
  void Strings(const std::string& key, const std::vector<std::string>& values) {
    ArrayKey(key, 8, values.size());
    for (const std::string& value : values) Text(value);
  }
  template <typename T, typename Values>
  void Numbers(const std::string& key, std::uint32_t type, const Values& values) {
    ArrayKey(key, type, values.size());
    for (const auto value : values) Raw(static_cast<T>(value));
  }
  void Text(const std::string& text) {
    Raw<std::uint64_t>(text.size());
    bytes_ += text;
  }
  template <typename T>
  void Raw(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  const std::string& bytes() const { return bytes_; }
  std::uint64_t count() const { return count_; }

 private:
  void Key(const std::string& key, std::uint32_t type) {
    Text(key);
    Raw(type);
    ++count_;
  }
  void ArrayKey(const std::string& key, std::uint32_t type, std::uint64_t count) {
    Key(key, 9);
    Raw(type);
    Raw(count);
  }
  std::string bytes_;
  std::uint64_t count_ = 0;
};

// Adds the fields that describe the model: shape, vocabulary, sampling. Keys that describe the file
// itself are not included.
void AddModelMetadata(const ModelFile& model, MetadataBuilder& out);

}  // namespace thermocline::model
