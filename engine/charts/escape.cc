#include "engine/charts/escape.h"

#include "engine/base/bytes.h"
#include "engine/base/strings.h"

namespace thermocline::charts {

std::string EscapeMarkup(std::string_view text) {
  std::string out;
  for (const char c : base::ReplaceInvalidUtf8(text)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        // Control characters are not allowed in a page.
        out += base::ByteOf(c) < ' ' && c != '\n' && c != '\t' ? ' ' : c;
    }
  }
  return out;
}

}  // namespace thermocline::charts
