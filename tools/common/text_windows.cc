#include "tools/common/text_windows.h"

#include <algorithm>

#include "engine/base/file.h"
#include "engine/base/index.h"

namespace thermocline::tools {

void AddTextOptions(const OptionSet& set, TextOptions& o, bool required) {
  set.Add("--text", o.text, "Text file to learn from, like what the model will write")
      .Required(required);
  set.Add("--tokens", IntValue{&o.tokens, 0}, "Read only the first tokens of the text; 0 = all")
      .ShowDefault();
  set.Add("--window", IntValue{&o.window, 2, 1 << 20}, "Tokens seen together").ShowDefault();
}

Result<std::vector<Window>> ReadTextWindows(const TextOptions& o, const load::LoadedModel& model) {
  if (model.tokenizer == nullptr)
    return base::FailedPrecondition(model.path, ": the model file holds no tokenizer");
  if (o.window > model.config.max_position_embeddings) {
    return base::OutOfRange("--window ", o.window, " does not fit the model's context of ",
                            model.config.max_position_embeddings);
  }
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(o.text));
  std::vector<int> tokens = model.tokenizer->Encode(text, {});
  if (tokens.empty())
    return base::InvalidArgument(o.text, ": the text is empty; give another --text");
  if (o.tokens > 0 && base::IntSize(tokens) > o.tokens) tokens.resize(o.tokens);
  const auto& vocabulary = model.tokenizer->vocabulary();
  const std::size_t room = o.window - (vocabulary.add_bos ? 1 : 0);
  std::vector<Window> windows;
  for (std::size_t begin = 0; begin < tokens.size(); begin += room) {
    Window& window = windows.emplace_back();
    if (vocabulary.add_bos) window.push_back(vocabulary.bos);
    const std::size_t end = std::min(tokens.size(), begin + room);
    window.insert(window.end(), tokens.begin() + begin, tokens.begin() + end);
  }
  return windows;
}

int CountTokens(const std::vector<Window>& windows) {
  std::size_t count = 0;
  for (const Window& window : windows) count += window.size();
  return static_cast<int>(count);
}

Result<SplitWindows> SplitHeldOut(const TextOptions& o, std::vector<Window> windows) {
  constexpr std::size_t kOneOf = 6;
  if (windows.size() < 2) {
    return base::InvalidArgument(o.text, ": ", CountTokens(windows), " tokens make ",
                                 windows.size(), " window of ", o.window,
                                 ", and at least 2 are needed, one of them held out; give a longer "
                                 "--text, more --tokens or a smaller --window");
  }
  SplitWindows split;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const bool held_out =
        windows.size() < kOneOf ? i + 1 == windows.size() : i % kOneOf == kOneOf - 1;
    (held_out ? split.held_out : split.train).push_back(std::move(windows[i]));
  }
  return split;
}

}  // namespace thermocline::tools
