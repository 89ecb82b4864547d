#include "engine/text/template_text.h"

#include <algorithm>

namespace thermocline::text {

bool TemplateText::IsOwn(std::size_t begin, std::size_t end) const {
  const auto cut = std::upper_bound(cuts_.begin(), cuts_.end(), begin);
  const bool own = begins_own_ != ((cut - cuts_.begin()) % 2 != 0);
  return own && (cut == cuts_.end() || *cut >= end);
}

void TemplateText::Append(std::string_view bytes, bool own) {
  if (bytes.empty()) return;
  const bool is_cut = !bytes_.empty() && own != EndsOwn();
  held_.Grow(bytes.size() + (is_cut ? sizeof(std::size_t) : 0));
  if (bytes_.empty()) begins_own_ = own;
  if (is_cut) cuts_.push_back(bytes_.size());
  bytes_ += bytes;
}

void TemplateText::AppendPart(const TemplateText& text, std::size_t begin, std::size_t end) {
  auto cut = std::upper_bound(text.cuts_.begin(), text.cuts_.end(), begin);
  bool own = text.begins_own_ != ((cut - text.cuts_.begin()) % 2 != 0);
  while (begin < end) {
    const std::size_t stop = cut == text.cuts_.end() ? end : std::min(*cut++, end);
    Append(std::string_view(text.bytes_).substr(begin, stop - begin), own);
    begin = stop;
    own = !own;
  }
}

TemplateText TemplateText::Part(std::size_t begin, std::size_t end) const {
  TemplateText out;
  out.AppendPart(*this, begin, end);
  return out;
}

}  // namespace thermocline::text
