// The text a template makes, which remembers who wrote each of its bytes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace thermocline::text {

// Bytes, and which of them are the template's own. All others are data: clients, tools and models
// wrote them. A control token is read only where all its bytes are the template's own, so a text
// whose origin is unknown is data. Thread-compatible.
class TemplateText {
 public:
  TemplateText() = default;
  static TemplateText Own(std::string bytes) { return TemplateText(std::move(bytes), true); }
  static TemplateText Data(std::string bytes) { return TemplateText(std::move(bytes), false); }

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // True if all bytes of [begin, end) are the template's own. Requires: begin < end <= size().
  bool IsOwn(std::size_t begin, std::size_t end) const;

  void Append(std::string_view bytes, bool own);
  void AppendOwn(std::string_view bytes) { Append(bytes, true); }
  void AppendData(std::string_view bytes) { Append(bytes, false); }
  void Append(const TemplateText& text) { AppendPart(text, 0, text.size()); }
  // Bytes [begin, end) of another text. Requires: begin <= end <= text.size().
  void AppendPart(const TemplateText& text, std::size_t begin, std::size_t end);
  TemplateText Part(std::size_t begin, std::size_t end) const;

 private:
  TemplateText(std::string bytes, bool own) : bytes_(std::move(bytes)), begins_own_(own) {}
  bool EndsOwn() const { return begins_own_ != (cuts_.size() % 2 != 0); }

  std::string bytes_;
  bool begins_own_ = false;        // the writer of the first byte
  std::vector<std::size_t> cuts_;  // where the writer changes, ascending
};

}  // namespace thermocline::text
