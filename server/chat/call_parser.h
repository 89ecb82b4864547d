// Reads the text of calls piece by piece, as CallFormat has them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/chat/json_scan.h"
#include "server/chat/message_part.h"
#include "server/chat/output_format.h"
#include "server/chat/tools.h"

namespace thermocline::chat {

// An id for a call whose text has none.
std::string NewCallId(bool of_nine);

// Thread-compatible.
class CallParser {
 public:
  // Both must live as long.
  CallParser(const OutputFormat& format, const std::vector<Tool>& tools)
      : format_(format), tools_(tools) {}

  // Takes what it can from `text`'s begin and appends parts. kMore: it needs more text; kEnded: the
  // last call has ended; kLost: the text is no call.
  enum class Outcome { kMore, kEnded, kLost };
  Outcome Push(std::string& text, std::vector<MessagePart>& out);
  // A call whose name stood elsewhere; its arguments are the JSON that comes.
  void BeginCall(const std::string& name, std::vector<MessagePart>& out);
  void AddArguments(std::string text, std::vector<MessagePart>& out);

  // The answer has ended: appends what was read of an argument that is under way, so that nothing
  // is lost. It stays open.
  void Finish(const std::string& text, std::vector<MessagePart>& out);

  int count() const { return count_; }
  // True once the name of the call that is read is known.
  bool named() const { return named_; }

 private:
  Outcome TakePiece(const CallPiece& piece, std::string& text, std::vector<MessagePart>& out);
  Outcome TakeLiteral(const std::string& literal, std::string& text);
  Outcome TakeWord(std::string& word, std::string& text);
  Outcome TakeJson(std::string& text, std::vector<MessagePart>& out);
  Outcome TakeTagged(std::string& text, std::vector<MessagePart>& out);
  Outcome TakeKey(std::string& text, std::vector<MessagePart>& out);
  Outcome TakeOpen(std::string& text, std::vector<MessagePart>& out);
  Outcome TakeWhole(std::string& text, std::vector<MessagePart>& out);
  Outcome TakeString(std::string& text, std::vector<MessagePart>& out);
  // The marks of the value that is read.
  const ValueMarks& marks() const;
  // True if the value that is read is a string, whatever it holds.
  bool IsString() const;
  void AddString(const std::string& raw, bool last, std::vector<MessagePart>& out);
  std::string Unwrapped(const std::string& raw, bool last);
  void EndValue(bool goes_on, std::vector<MessagePart>& out);
  // The place of the mark that ends a value, and whether another argument follows; npos: not yet.
  struct ValueEnd {
    std::size_t at = kNowhere;
    bool goes_on = false;
  };
  ValueEnd FindEnd(const std::string& text, std::size_t from) const;
  // Bytes at the text's end that may be the begin of a mark.
  std::size_t EndOfCut(const std::string& text) const;
  std::size_t OverlapOfMarks(const std::string& text) const;
  std::string ValueJson(const std::string& raw) const;
  bool Announce(std::vector<MessagePart>& out);

  const OutputFormat& format_;
  const std::vector<Tool>& tools_;
  bool further_ = false;   // the pieces are those of CallFormat::next
  std::size_t piece_ = 0;  // the next one
  int count_ = 0;
  bool named_ = false;               // of the call that is read
  bool announced_ = false;           // its kCallBegin was said
  std::string name_, id_, waiting_;  // arguments before the name is known
  JsonScan scan_;
  bool in_json_ = false;
  // Arguments one by one.
  enum class Argument { kFirst, kKey, kOpen, kWhole, kString };
  Argument argument_ = Argument::kFirst;
  std::string key_;
  bool as_text_ = false;         // the value stands where strings stand
  std::string held_;             // of a string, what may be the begin of a mark
  std::optional<bool> wrapped_;  // whether it stands in CDATA, once that is known
  bool any_argument_ = false;
};

}  // namespace thermocline::chat
