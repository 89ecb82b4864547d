#include "tools/eval/task_eval.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/base/bytes.h"
#include "engine/base/index.h"
#include "engine/base/ratio.h"
#include "engine/sampling/sampler.h"
#include "tools/common/command_line.h"
#include "tools/common/console.h"
#include "tools/common/work_report.h"
#include "tools/eval/side.h"
#include "tools/eval/task.h"

namespace thermocline::tools {
namespace {

using Tokens = std::vector<int>;

// An item as tokens.
struct Encoded {
  Tokens prompt;
  std::vector<Tokens> continuations;  // for kChoices

  int longest() const {
    std::size_t longest = 0;
    for (const Tokens& tokens : continuations) longest = std::max(longest, tokens.size());
    return static_cast<int>(longest);
  }
};

// The number of characters, which the harness normalizes by.
std::size_t Characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (base::ByteOf(c) & 0xC0U) != 0x80U; });
}

// Spaces at the end of a prompt are moved to the continuation, because tokens begin with their
// space.
Encoded Encode(const text::Tokenizer& tokenizer, const TaskItem& item) {
  const std::size_t end = item.prompt.find_last_not_of(" \t\n") + 1;
  const text::EncodeOptions options{.add_bos = tokenizer.vocabulary().add_bos};
  const std::string prompt = item.choices.empty() ? item.prompt : item.prompt.substr(0, end);
  Encoded encoded{tokenizer.Encode(prompt, options), {}};
  for (const std::string& choice : item.choices) {
    const Tokens whole = tokenizer.Encode(StrCat(item.prompt, " ", choice), options);
    const std::size_t from = std::min(encoded.prompt.size(), whole.size() - 1);
    encoded.continuations.emplace_back(whole.begin() + from, whole.end());
  }
  return encoded;
}

class Evaluation {
 public:
  Evaluation(Side& side, const TaskOptions& options, const Task& task)
      : side_(side), options_(options), task_(task), tokenizer_(*side.model().tokenizer) {
    for (const TaskItem& item : task.items) encoded_.push_back(Encode(tokenizer_, item));
  }

  // Truncates prompts that exceed the context, and allocates for the longest item.
  Status Prepare() {
    const int context = side_.model().config.max_position_embeddings;
    int longest = 1;
    for (Encoded& item : encoded_) {
      const int behind = generates() ? options_.max_new_tokens : item.longest() - 1;
      if (behind + 1 > context)
        return base::OutOfRange("an answer of ", behind,
                                " tokens does not fit the model's context of ", context);
      const int over = base::IntSize(item.prompt) + behind - context;
      if (over > 0) {
        item.prompt.erase(item.prompt.begin(), item.prompt.begin() + over);
        ++truncated_;
      }
      longest = std::max(longest, base::IntSize(item.prompt) + behind);
    }
    return side_.Prepare(longest);
  }

  Status Run() {
    ProgressBar bar("evaluating");
    for (std::size_t i = 0; i < encoded_.size(); ++i) {
      RETURN_IF_ERROR(generates() ? Answer(i) : Choose(i));
      bar.Show(base::Ratio(i + 1, encoded_.size()));
    }
    return OkStatus();
  }

  Json Report() const {
    Json out{Json::Object{{"task", options_.path},
                          {"kind", TaskKindName(task_.kind)},
                          {"items", encoded_.size()},
                          {"truncated", truncated_}}};
    for (const auto& [name, right] : right_) {
      const double share = base::Ratio(right, encoded_.size());
      out.Set(name, share);
      out.Set(name + "_stderr", StandardError(share));
    }
    out.Set("work", WorkJson(side_.Work()));
    out.Set("samples", samples_);
    return out;
  }

  void Print() const {
    std::printf("%s: %zu items of kind %s", options_.path.c_str(), encoded_.size(),
                TaskKindName(task_.kind));
    for (const auto& [name, right] : right_) {
      const double share = base::Ratio(right, encoded_.size());
      std::printf(", %s %.2f%% (+-%.2f)", name.c_str(), 100 * share, 100 * StandardError(share));
    }
    std::printf("\n");
    if (truncated_ > 0)
      std::printf("%d prompts did not fit the context and lost their beginning\n", truncated_);
  }

 private:
  bool generates() const { return task_.kind != Task::Kind::kChoices; }

  double StandardError(double share) const {
    const double n = base::IntSize(encoded_);
    return n > 1 ? std::sqrt(share * (1 - share) / (n - 1)) : 0;
  }

  void Count(const std::string& name, bool right) {
    const auto found = std::find_if(right_.begin(), right_.end(),
                                    [&](const auto& each) { return each.first == name; });
    if (found == right_.end()) {
      right_.emplace_back(name, right ? 1 : 0);
    } else {
      found->second += right ? 1 : 0;
    }
  }

  // Logits after the last of `tokens`.
  Result<std::vector<float>> Read(std::span<const int> tokens) {
    std::vector<float> last;
    for (std::size_t at = 0; at < tokens.size(); at += kPrefillChunk) {
      const auto part =
          tokens.subspan(at, std::min<std::size_t>(kPrefillChunk, tokens.size() - at));
      ASSIGN_OR_RETURN(const auto logits, side_.Logits(part));
      const auto row = logits.last(side_.vocab_size());
      last.assign(row.begin(), row.end());
    }
    return last;
  }

  // The log-likelihood of `tokens` in nats, after the prompt whose last logits are `first`.
  Result<double> LogLikelihood(const Tokens& tokens, std::span<const float> first) {
    double sum = sampling::LogProbability(first, tokens.front());
    for (std::size_t at = 0; at + 1 < tokens.size(); at += kPrefillChunk) {
      const std::size_t count = std::min<std::size_t>(kPrefillChunk, tokens.size() - 1 - at);
      ASSIGN_OR_RETURN(const auto logits, side_.Logits(std::span(tokens).subspan(at, count)));
      for (std::size_t i = 0; i < count; ++i) {
        const auto row = logits.subspan(i * side_.vocab_size(), side_.vocab_size());
        sum += sampling::LogProbability(row, tokens[at + i + 1]);
      }
    }
    return sum;
  }

  Status Choose(std::size_t index) {
    const TaskItem& item = task_.items[index];
    const Encoded& encoded = encoded_[index];
    side_.Rewind();
    ASSIGN_OR_RETURN(const auto first, Read(encoded.prompt));
    std::vector<double> sums, by_character;
    for (std::size_t i = 0; i < item.choices.size(); ++i) {
      side_.Rewind(base::IntSize(encoded.prompt));
      ASSIGN_OR_RETURN(const double sum, LogLikelihood(encoded.continuations[i], first));
      sums.push_back(sum);
      by_character.push_back(sum / static_cast<double>(Characters(item.choices[i])));
    }
    const auto best = [](const std::vector<double>& values) {
      return base::IndexOfLargest(values);
    };
    Count("acc", best(sums) == item.gold);
    Count("acc_norm", best(by_character) == item.gold);
    samples_.push_back(Json::Object{{"gold", item.gold},
                                    {"pick", best(sums)},
                                    {"pick_norm", best(by_character)},
                                    {"log_likelihood", Json::Array(sums.begin(), sums.end())}});
    return OkStatus();
  }

  // The position of the first of `stops` in the text; npos if there is none.
  static std::size_t FindStop(const std::string& text, const std::vector<std::string>& stops) {
    std::size_t first = std::string::npos;
    for (const std::string& stop : stops) first = std::min(first, text.find(stop));
    return first;
  }

  Result<std::string> Generate(const Tokens& prompt, const std::vector<std::string>& stops) {
    side_.Rewind();
    ASSIGN_OR_RETURN(auto logits, side_.ReadPrompt(prompt));
    Tokens tokens;
    std::string text;
    while (base::IntSize(tokens) < options_.max_new_tokens) {
      const int next = base::IndexOfLargest(logits);
      if (tokenizer_.IsStop(next)) break;
      tokens.push_back(next);
      text = tokenizer_.Decode(tokens);
      const std::size_t stop = FindStop(text, stops);
      if (stop != std::string::npos) return text.substr(0, stop);
      if (base::IntSize(tokens) == options_.max_new_tokens) break;
      ASSIGN_OR_RETURN(logits, side_.Decode(next));
    }
    return text;
  }

  Status Answer(std::size_t index) {
    const TaskItem& item = task_.items[index];
    ASSIGN_OR_RETURN(const std::string text, Generate(encoded_[index].prompt, item.stop));
    Json::Object sample{{"text", text}};
    if (task_.kind == Task::Kind::kGsm8k) {
      const bool strict = SameAnswer(StrictAnswer(text), item.answer),
                 flexible = SameAnswer(FlexibleAnswer(text), item.answer);
      Count("exact_match", strict);
      Count("exact_match_flexible", flexible);
      sample.emplace_back("right", strict);
      sample.emplace_back("right_flexible", flexible);
    } else {
      const auto trimmed = [](const std::string& s) {
        const std::size_t begin = s.find_first_not_of(" \t\n");
        return begin == std::string::npos
                   ? std::string()
                   : s.substr(begin, s.find_last_not_of(" \t\n") + 1 - begin);
      };
      const bool right = trimmed(text) == trimmed(item.answer);
      Count("exact_match", right);
      sample.emplace_back("right", right);
    }
    samples_.push_back(std::move(sample));
    return OkStatus();
  }

  Side& side_;
  const TaskOptions& options_;
  const Task& task_;
  const text::Tokenizer& tokenizer_;
  std::vector<Encoded> encoded_;
  int truncated_ = 0;
  std::vector<std::pair<std::string, int>> right_;  // by measure
  Json::Array samples_;
};

}  // namespace

void AddTaskOptions(const OptionSet& set, TaskOptions& options) {
  const OptionRef task =
      set.Add("--task", options.path,
              "JSONL of questions to answer instead: GSM8K's, choices, or prompts with answers");
  for (const char* other : {"--text", "--tokens", "--window", "--score-from", "--max-tokens",
                            "--logits", "--decode", "--against", "--predictor", "--plot"})
    task.Excludes(set.Find(other));
  set.Add("--shots", IntValue{&options.shots, 0, 100},
          "The first items are examples in front of the others' prompts")
      .Needs(task);
  set.Add("--limit", IntValue{&options.limit, 0}, "Answer only the first items; 0 = all")
      .Needs(task);
  set.Add("--max-new-tokens", IntValue{&options.max_new_tokens, 1, 1 << 20},
          "Tokens of an answer, at most")
      .ShowDefault()
      .Needs(task);
}

Status EvalTask(const ModelOptions& model, const TaskOptions& options, bool json) {
  ASSIGN_OR_RETURN(Task task, ReadTask(options.path, options.shots));
  if (options.limit > 0 && options.limit < base::IntSize(task.items))
    task.items.resize(options.limit);
  ASSIGN_OR_RETURN(const auto side, Side::Create(model, false));
  if (side->model().tokenizer == nullptr)
    return base::FailedPrecondition(side->model().path, ": the model file holds no tokenizer");
  Evaluation evaluation(*side, options, task);
  RETURN_IF_ERROR(evaluation.Prepare());
  RETURN_IF_ERROR(evaluation.Run());
  if (json) {
    PrintJson(evaluation.Report());
  } else {
    evaluation.Print();
  }
  return OkStatus();
}

}  // namespace thermocline::tools
