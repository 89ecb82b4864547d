// Names answers by all that their client has seen: the messages before an answer, its text and its
// calls. A client that sends an answer back may write it in other bytes: arguments of calls with
// other spaces, escapes and orders of keys, text without the white space around it, no reasoning.
// The name is the same.
#pragma once

#include <string_view>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/sha256.h"
#include "server/chat/message_part.h"

namespace thermocline::chat {

// The first bytes of a key are those of all keys of its owner.
inline constexpr std::size_t kOwnerBytes = 8;

// One answer in a conversation: consecutive messages of the assistant, which a client may have made
// of one answer.
struct PastAnswer {
  int first = 0, count = 0;  // its messages
  base::Digest256 key = {};
};

struct AnswerKeys {
  std::vector<PastAnswer> answers = {};  // in the order of the conversation
  base::Digest256 messages = {};         // names all messages, for KeyOfAnswer
};

// `messages` are in the form of Conversation::json. Answers of different owners have different
// keys.
AnswerKeys KeysOfAnswers(std::string_view owner, const Json::Array& messages);

// The key that KeysOfAnswers gives to `answer` once it follows the messages named `before`.
base::Digest256 KeyOfAnswer(const base::Digest256& before, const WholeMessage& answer);

}  // namespace thermocline::chat
