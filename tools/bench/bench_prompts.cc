#include "tools/bench/bench_prompts.h"

#include <memory>
#include <sstream>

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/chat.h"
#include "engine/text/tokenizer.h"

namespace thermocline::tools {
namespace {

constexpr const char* kHeroes[] = {"an owl",        "a brave dragon", "a lost kitten",
                                   "a red balloon", "two sisters",    "an old tree",
                                   "a little boat", "the moon"};

// Encodes prompts for one model.
class Encoder {
 public:
  explicit Encoder(const text::Tokenizer& tokenizer)
      : tokenizer_(tokenizer), chat_(ChatFormatter::Create(tokenizer)) {}

  std::vector<int> Text(const std::string& text) const {
    return tokenizer_.Encode(text,
                             {.add_bos = tokenizer_.vocabulary().add_bos, .control_tokens = true});
  }
  Result<std::vector<int>> Chat(const Json& messages) const {
    RETURN_IF_ERROR(chat_.status());
    return (*chat_)->Encode(Json(Json::Object{{"messages", messages}}));
  }
  Result<std::vector<int>> Line(const std::string& line) const {
    if (line[0] != '{') return Text(line);
    ASSIGN_OR_RETURN(const Json json, base::ParseJson(line));
    const Json *prompt = json.Find("prompt"), *messages = json.Find("messages");
    if (prompt != nullptr && prompt->is_string()) return Text(prompt->as_string());
    if (messages != nullptr && messages->is_array()) return Chat(*messages);
    return base::InvalidArgument("an object needs a text 'prompt' or a list of 'messages'");
  }

 private:
  const text::Tokenizer& tokenizer_;
  const Result<std::unique_ptr<ChatFormatter>> chat_;
};

Result<std::vector<std::vector<int>>> Stories(const Encoder& encoder) {
  std::vector<std::vector<int>> prompts;
  for (const char* hero : kHeroes) {
    const Json message =
        Json::Object{{"role", "user"}, {"content", StrCat("Tell me a story about ", hero, ".")}};
    auto prompt = encoder.Chat(Json::Array{message});
    if (!prompt.ok()) return prompt.status().Annotate("without --prompts a chat is measured");
    prompts.push_back(*std::move(prompt));
  }
  return prompts;
}

}  // namespace

Result<std::vector<std::vector<int>>> BenchPrompts(const std::string& path,
                                                   const text::Tokenizer& tokenizer) {
  const Encoder encoder(tokenizer);
  if (path.empty()) return Stories(encoder);
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path));
  std::vector<std::vector<int>> prompts;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    auto prompt = encoder.Line(line);
    if (!prompt.ok()) return prompt.status().Annotate(StrCat(path, ":", number));
    if (prompt->empty()) return base::InvalidArgument(path, ":", number, ": an empty prompt");
    prompts.push_back(*std::move(prompt));
  }
  if (prompts.empty()) return base::InvalidArgument(path, ": no prompts");
  return prompts;
}

}  // namespace thermocline::tools
