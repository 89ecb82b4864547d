// Parses the text of calls in CallFormat as it arrives.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/chat/json_scan.h"
#include "server/chat/message_part.h"
#include "server/chat/output_format.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

// Makes an id for a call without one; `of_nine`: nine characters.
std::string NewCallId(bool of_nine);

// Thread-compatible.
class CallParser {
 public:
  // Both must outlive this.
  CallParser(const OutputFormat& format, const std::vector<Tool>& tools)
      : format_(format), tools_(tools) {}

  // Consumes the start of `text` as far as possible and appends parts. kMore: it needs more text;
  // kEnded: the last call has ended; kLost: the text is no call.
  enum class Outcome { kMore, kEnded, kLost };
  Outcome Push(std::string& text, std::vector<MessagePart>& out);
  // Begins a call whose name came from outside the call; its arguments are the JSON that follows.
  void BeginCall(const std::string& name, std::vector<MessagePart>& out);
  void AddArguments(std::string text, std::vector<MessagePart>& out);

  // Called when the answer has ended: appends the part of an unfinished argument, so that no text
  // is lost. Unless a limit cut the answer, the missing brackets of JSON are appended, too.
  void Finish(const std::string& text, bool cut, std::vector<MessagePart>& out);
  // Returns the text that Push consumed before a call's arguments or behind them, and forgets it:
  // after kLost it belongs before the rest of the text.
  std::string TakeBack() {
    further_ = named_ = announced_ = false;
    tolerated_ = count_ > 0;
    piece_ = 0;
    id_.clear();
    return std::exchange(taken_, "");
  }

  int count() const { return count_; }
  // True if a call ended otherwise than in the format.
  bool tolerated() const { return tolerated_; }
  // True once the current call's name is known.
  bool named() const { return named_; }

 private:
  Outcome TakePiece(const CallPiece& piece, std::string& text, std::vector<MessagePart>& out);
  Outcome BeginsArguments(const std::string& text) const;
  Outcome TakeLiteral(const std::string& literal, std::string& text);
  Outcome TakeWord(std::string& word, std::string& text);
  Outcome TakeJson(std::string& text, std::vector<MessagePart>& out);
  Outcome TakeTagged(std::string& text, std::vector<MessagePart>& out);
  Outcome TakeKey(std::string& text, std::vector<MessagePart>& out);
  Outcome TakeOpen(std::string& text, std::vector<MessagePart>& out);
  Outcome TakeWhole(std::string& text, std::vector<MessagePart>& out);
  Outcome TakeString(std::string& text, std::vector<MessagePart>& out);
  // The marks of the current value.
  const ValueMarks& marks() const;
  // True if the current value is a string, whatever its text.
  bool IsString() const;
  void AddString(const std::string& raw, bool last, std::vector<MessagePart>& out);
  std::string Unwrapped(const std::string& raw, bool last);
  void EndValue(bool continues, std::vector<MessagePart>& out);
  // The position of the mark that ends a value, and whether another argument follows; npos: the
  // mark has not arrived.
  struct ValueEnd {
    std::size_t at = kNowhere;
    bool continues = false;
  };
  ValueEnd FindEnd(const std::string& text, std::size_t from) const;
  // The number of bytes at the text's end that may be the start of a mark.
  std::size_t EndOfCut(const std::string& text) const;
  std::size_t OverlapOfMarks(const std::string& text) const;
  std::string ValueJson(const std::string& raw) const;
  bool Announce(std::vector<MessagePart>& out);

  const OutputFormat& format_;
  const std::vector<Tool>& tools_;
  bool further_ = false;   // the pieces are those of CallFormat::next
  std::size_t piece_ = 0;  // the next piece
  int count_ = 0;
  bool named_ = false;      // the current call has a name
  bool announced_ = false;  // its kCallBegin was emitted
  std::string name_, id_;
  std::string taken_;  // consumed since the last call's arguments, or since the start
  JsonScan scan_;
  bool in_json_ = false;
  // A value that is taken as one piece: the end of its brackets, 0 = not found, and the number of
  // bytes that hold no end of the value.
  std::size_t inner_ = 0, searched_ = 0;
  // The state of arguments that are written one by one.
  enum class Argument { kFirst, kKey, kOpen, kWhole, kString };
  Argument argument_ = Argument::kFirst;
  std::string key_;
  bool as_text_ = false;         // the value has the marks of strings
  std::string held_;             // bytes of a string that may be the start of a mark
  std::optional<bool> wrapped_;  // the string is in CDATA; nullopt until known
  bool any_argument_ = false;
  bool tolerated_ = false;
};

}  // namespace thermocline::chat
