// Prompts for benchmarks.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"

namespace thermocline {
namespace text {
class Tokenizer;
}
namespace tools {

// Token ids of each prompt of the file `path`, at least one; each line is a prompt. A line that
// begins with '{' is a JSON object: {"prompt": text} or {"messages": [...]}, a chat. Others are raw
// text, as for `run -p`. Empty lines are skipped. With path "", a few short chats that ask for
// stories. InvalidArgument names the line. FailedPrecondition: a chat, and the model has no
// template.
Result<std::vector<std::vector<int>>> BenchPrompts(const std::string& path,
                                                   const text::Tokenizer& tokenizer);

}  // namespace tools
}  // namespace thermocline
