// The totals of a memory plan, and its table.
#include <cstdio>

#include "engine/base/strings.h"
#include "engine/load/memory_plan.h"

namespace thermocline::load {

std::size_t MemoryPlan::total() const {
  std::size_t sum = 0;
  for (const Line& line : lines) sum += line.bytes;
  return sum - given_back;
}

std::size_t MemoryPlan::RoomWhileLoading() const {
  const std::size_t held = total() - grammars;
  return budget > held ? budget - held : 0;
}

void MemoryPlan::GrowGrammars(std::size_t bytes) {
  for (Line& line : lines)
    if (line.name == kGrammarsLine) line.bytes += bytes;
  grammars += bytes;
}

bool MemoryPlan::Reserve(const char* name, std::size_t bytes) {
  const std::size_t room = RoomWhileLoading();
  if (bytes + grammars_least > room) return false;
  for (Line& line : lines)
    if (line.name == kGrammarsLine) line.bytes -= grammars;
  lines.push_back({name, bytes});
  const std::size_t kept = std::min(grammars, room - bytes);
  grammars = 0;
  GrowGrammars(kept);
  return true;
}

std::string MemoryPlan::Table() const {
  std::string text;
  const auto add = [&](const std::string& name, std::size_t bytes) {
    char line[96];
    std::snprintf(line, sizeof(line), "  %-34s %10s\n", name.c_str(),
                  base::HumanBytes(bytes).c_str());
    text += line;
  };
  for (const Line& line : lines) add(line.name, line.bytes);
  if (given_back > 0) add("given back after loading", given_back);
  add("together", total());
  return text;
}

}  // namespace thermocline::load
