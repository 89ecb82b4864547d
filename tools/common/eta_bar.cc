#include "tools/common/eta_bar.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "engine/base/index.h"

namespace thermocline::tools {

EtaBar::EtaBar() : terminal_(::isatty(STDERR_FILENO) != 0) {}

void EtaBar::Show(double share, std::string_view what) {
  const Clock::time_point now = Clock::now();
  if (!terminal_ || now - printed_ < std::chrono::milliseconds(500)) return;
  printed_ = now;
  shown_ = true;
  const double elapsed = std::chrono::duration<double>(now - begin_).count();
  // A forecast from the first hundredth would be a guess.
  const std::string left =
      share > 0.01 ? HumanDuration(elapsed * (1 - share) / share) + " left" : "";
  std::fprintf(stderr, "\r\033[K%3d%%  %.*s  %s", static_cast<int>(share * 100),
               base::IntSize(what), what.data(), left.c_str());
}

void EtaBar::Clear() {
  if (shown_) std::fprintf(stderr, "\r\033[K");
  shown_ = false;
}

std::string HumanDuration(double seconds) {
  const auto s = std::lround(seconds);
  char text[48];
  if (s >= 3600) {
    std::snprintf(text, sizeof(text), "%ld h %02ld min", s / 3600, s / 60 % 60);
  } else if (s >= 60) {
    std::snprintf(text, sizeof(text), "%ld min %02ld s", s / 60, s % 60);
  } else {
    std::snprintf(text, sizeof(text), "%ld s", s);
  }
  return text;
}

}  // namespace thermocline::tools
