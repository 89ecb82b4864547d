// Replaces launch in a build without the server.
#include "tools/common/command_line.h"
#include "tools/common/console.h"

namespace thermocline::tools {

Command AddLaunch(const OptionSet& set) {
  auto agent = std::make_shared<std::string>();
  set.Add("agent", *agent, "The program to run");
  return [agent] { return base::Unimplemented("this program was built without the server"); };
}

}  // namespace thermocline::tools
