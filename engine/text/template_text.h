// The text that a template produces, with the origin of each byte.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/held_memory.h"

namespace thermocline::text {

// Bytes, each marked as the template's own or as data. Data comes from clients, tools and models. A
// control token is recognised only if all its bytes are the template's own, so a text of unknown
// origin is data. Thread-compatible.
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
  // Appends bytes [begin, end) of another text. Requires: begin <= end <= text.size().
  void AppendPart(const TemplateText& text, std::size_t begin, std::size_t end);
  TemplateText Part(std::size_t begin, std::size_t end) const;

 private:
  TemplateText(std::string bytes, bool own)
      : held_(bytes.size()), bytes_(std::move(bytes)), begins_own_(own) {}
  bool EndsOwn() const { return begins_own_ != (cuts_.size() % 2 != 0); }

  HeldShare held_;  // of the bytes and cuts; counted before they are copied
  std::string bytes_;
  bool begins_own_ = false;        // the origin of the first byte
  std::vector<std::size_t> cuts_;  // positions where the origin changes, ascending
};

}  // namespace thermocline::text
