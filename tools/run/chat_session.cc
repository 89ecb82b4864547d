#include "tools/run/chat_session.h"

#include <cstdio>
#include <filesystem>

#include "tools/run/chat_commands.h"
#include "tools/run/generation.h"
#include "tools/run/word_wrap.h"

namespace thermocline::tools {
namespace {

constexpr std::string_view kBlock = "\"\"\"";

std::string Trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// A note about an answer that did not end by itself; "" = none.
std::string EndingOf(const Generation& g, const RunOptions& options) {
  if (g.reason == FinishReason::kCancelled) return "(stopped)";
  if (g.reason != FinishReason::kLength) return "";
  return g.usage.completion_tokens == options.max_tokens
             ? StrCat("(ended at max-tokens ", options.max_tokens, ")")
             : "(ended: the context is full; /clear begins anew)";
}

}  // namespace

void Note(const std::string& text) {
  std::fflush(stdout);
  WordWrap out(stderr, ColumnsOf(stderr));
  out.Write(text);
  out.Finish();
}

Result<std::unique_ptr<ChatSession>> ChatSession::Create(Engine& engine, RunOptions& options,
                                                         LineReader& reader) {
  ASSIGN_OR_RETURN(auto formatter, ChatFormatter::Create(engine.tokenizer()));
  return std::unique_ptr<ChatSession>(
      new ChatSession(engine, options, reader, std::move(formatter)));
}

ChatSession::ChatSession(Engine& engine, RunOptions& options, LineReader& reader,
                         std::unique_ptr<ChatFormatter> formatter)
    : engine_(engine),
      options_(options),
      reader_(reader),
      formatter_(std::move(formatter)),
      conversation_(options.system) {}

Status ChatSession::Run() {
  if (reader_.terminal()) Greet();
  while (!ended_) {
    const auto line = ReadMessage();
    if (!line.has_value()) break;
    if (line->empty()) continue;
    Fail(Answer(*line));
  }
  return reader_.terminal() ? OkStatus() : first_error_;
}

void ChatSession::Fail(const Status& status) {
  if (status.ok()) return;
  Note(status.message());
  if (first_error_.ok()) first_error_ = status;
}

void ChatSession::Greet() {
  const EngineStats stats = engine_.Stats();
  const std::string why = stats.hot.fallback.substr(0, stats.hot.fallback.find(": "));
  const std::string gpu = why.empty() ? "" : StrCat("; no GPU: ", why);
  Note(StrCat(std::filesystem::path(stats.model_path).filename().string(), ": ",
              stats.context_length, " tokens of context, ", stats.cpu_isa, ", ", stats.threads,
              " threads", gpu));
  Note("/help lists the commands, Ctrl-C stops an answer, Ctrl-D ends.");
}

std::optional<std::string> ChatSession::ReadMessage() {
  LineReader::Line line = reader_.Read(">>> ");
  if (line.end == LineReader::End::kEndOfInput) return std::nullopt;
  if (line.end == LineReader::End::kInterrupted) return "";
  const std::string text = Trimmed(line.text);
  if (text.find('\n') != std::string::npos && !text.starts_with(kBlock)) return " " + text;
  if (text.starts_with(kBlock)) return ReadBlock(text.substr(kBlock.size()));
  // A leading space turns a line that looks like a command into a message.
  return line.text.starts_with(' ') && text.starts_with('/') ? " " + text : text;
}

std::optional<std::string> ChatSession::ReadBlock(std::string text) {
  while (!text.ends_with(kBlock)) {
    LineReader::Line line = reader_.Read("... ");
    if (line.end == LineReader::End::kInterrupted) return "";
    if (line.end == LineReader::End::kEndOfInput) {
      Fail(base::InvalidArgument("The input ended within \"\"\": this message was not sent"));
      return std::nullopt;
    }
    text += (text.empty() ? "" : "\n") + line.text;
  }
  text.resize(text.size() - kBlock.size());
  return Trimmed(text).empty() ? "" : " " + text;
}

Status ChatSession::Answer(const std::string& line) {
  if (line.starts_with('/')) return RunCommand(*this, line);
  return Ask(line.starts_with(' ') ? line.substr(1) : line);
}

Status ChatSession::Ask(const std::string& message) {
  conversation_.Add("user", message);
  auto prompt = formatter_->Encode(conversation_.ToJson());
  WordWrap out(stdout, ColumnsOf(stdout));
  const QuietKeys quiet(reader_.terminal());
  const auto g = prompt.ok() ? Generate(engine_, MakeRequest(options_, *std::move(prompt)),
                                        [&](std::string_view text) { out.Write(text); })
                             : Result<Generation>(prompt.status());
  out.Finish();
  if (!g.ok()) {
    conversation_.DropLast();
    if (g.status().code() != StatusCode::kOutOfRange) return g.status();
    return g.status().Annotate(
        "This message was not sent; /clear begins a new conversation, /save keeps this one");
  }
  last_usage_ = g->usage;
  if (g->text.empty() && g->reason == FinishReason::kCancelled) {
    conversation_.DropLast();
  } else {
    conversation_.Add("assistant", g->text);
  }
  if (const std::string ending = EndingOf(*g, options_); !ending.empty()) Note(ending);
  if (options_.stats) Note(SpeedLine(g->usage, engine_.Stats()));
  return OkStatus();
}

}  // namespace thermocline::tools
