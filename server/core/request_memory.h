// The memory of requests while they arrive, wait and are read: a line of the memory plan, which
// admission asks before more is taken.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "server/core/server_config.h"

namespace thermocline::server {

// Bytes.
struct RequestSizes {
  std::size_t bodies = 0;  // as they arrived, of all connections
  std::size_t values = 0;  // what is made of them: JSON, templates' values, prompts
  // grpc.address is set: what its library buffers.
  std::size_t grpc = 0;

  std::size_t total() const { return bodies + values + grpc; }
};

// server.request_memory_mib, at most an eighth of the memory budget, at least 24 MiB.
RequestSizes RequestSizesOf(const ServerConfig& config);

// Measures words as tokenizing takes them: without a single space between two other characters.
class LongestWord {
 public:
  // `joined`: behind the last such text without anything between.
  void Add(std::string_view text, bool joined);
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
  std::size_t open_ = 0;  // of the word that the last joined text ends with
};

// The parts of a request.
struct BodyParts {
  std::size_t bytes = 0, values = 0, containers = 0;
  LongestWord words = {};

  // Bytes that reading it takes beside it, at most: JSON's values, a template's and the prompt.
  std::size_t cost() const;
};

// Before it is read, a body of JSON is judged by what stands in it.
struct BodyCost {
  std::size_t bytes = 0;        // as BodyParts::cost
  std::size_t members = 0;      // of its largest object
  std::string_view field = {};  // of the body, in which that object stands; empty: it is the body
};
BodyCost CostOf(std::string_view body);

// Work on an object of more members is refused: some of it grows with their square.
inline constexpr std::size_t kMembersMax = 1024;

// InvalidArgument: the body takes more than the lane of large requests (WorkMemory) has, which is
// kTooLarge and names the setting, or it has an object of too many members.
Status CheckCost(const BodyCost& cost, const RequestSizes& sizes);

// Bytes of a text that a request makes, of its messages and a template: one that would take more
// than the lane of large requests has is not made.
std::size_t MadeTextBytesMax(const RequestSizes& sizes);
// InvalidArgument, kTooLarge: tokenizing `text` takes more than that lane has.
Status CheckMadeText(std::string_view text, const RequestSizes& sizes);

// Returns to the system what work on so many bytes has left, if they are many; the heaps of threads
// would keep it for as long as they like.
void GiveBackHeap(std::size_t values_bytes);

// Answers, and what they are made of, up to this are in the margin of the plan.
inline constexpr std::size_t kSmallAnswerBytes = 64 << 10;

// ResourceExhausted: what a client is told where RequestMemory::Hold::TakeForAnswer is false.
Status UnreadAnswers();

// Bodies that are held, and what answers are made of. A client (a tenant) holds half of what there
// is at most, and a quarter is for clients that hold little, so that others' requests get in beside
// one, and ordinary ones beside any two. Thread-safe.
class RequestMemory {
 public:
  // A connection's part. Thread-compatible; ends before its RequestMemory.
  class Hold {
   public:
    Hold(RequestMemory& memory, std::string client) : memory_(memory), client_(std::move(client)) {}
    ~Hold() { memory_.Set(*this, 0); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    // ResourceExhausted: there is no room for so many bytes now; what was held still is.
    Status Grow(std::size_t bytes);
    // Takes also what there is not, for an answer, which is there already. It keeps this client's
    // later bodies out, not others'.
    void Force(std::size_t bytes);
    // Takes `bytes` for a large answer that is about to be written, or returns false. It may be
    // written while the client's unread ones are less than its half and everybody's less than all;
    // a client's first one while those of each client, up to an eighth of all, are less than all.
    bool TakeForAnswer(std::size_t bytes);

   private:
    friend class RequestMemory;
    RequestMemory& memory_;
    const std::string client_;
    std::size_t bytes_ = 0;
    bool of_answer_ = false;
  };

  // `body_bytes_max`: a client may hold one such body in any case.
  RequestMemory(std::size_t bytes_max, std::size_t body_bytes_max);

  std::size_t held() const;
  // True once after much was held, when nearly nothing is, and once after AskForTrim: the heap may
  // be given back.
  bool TakeTrimHint();
  // Others have freed much, or so many bytes, which add up.
  void AskForTrim();
  void NoteFreed(std::size_t bytes);

 private:
  struct Share {
    std::size_t bytes = 0;    // of bodies and answers
    std::size_t answers = 0;  // of these
  };
  bool HasRoomForAnswer(const std::string& client) const REQUIRES(mutex_);
  bool HasRoom(const Hold& hold, std::size_t bytes) const REQUIRES(mutex_);
  void Set(Hold& hold, std::size_t bytes);
  void SetLocked(Hold& hold, std::size_t bytes) REQUIRES(mutex_);

  const std::size_t bytes_max_, client_max_, large_max_;
  mutable base::Mutex mutex_;
  std::size_t held_ GUARDED_BY(mutex_) = 0;     // by bodies
  std::size_t answers_ GUARDED_BY(mutex_) = 0;  // unread
  std::size_t peak_ GUARDED_BY(mutex_) = 0;     // of both, since the last hint
  std::size_t freed_ GUARDED_BY(mutex_) = 0;    // by others, since the last hint
  bool trim_asked_ GUARDED_BY(mutex_) = false;
  std::map<std::string, Share> by_client_ GUARDED_BY(mutex_);
};

}  // namespace thermocline::server
