// The memory of requests while they arrive, wait and are parsed. It is a line of the memory plan;
// admission checks it before it accepts more.
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
  std::size_t bodies = 0;  // request bodies of all connections
  std::size_t values = 0;  // parsed from them: JSON, template values, prompts
  // The buffers of gRPC's library, if grpc.address is set.
  std::size_t grpc = 0;

  std::size_t total() const { return bodies + values + grpc; }
};

// server.request_memory_mib, at most an eighth of the memory budget, at least 24 MiB.
RequestSizes RequestSizesOf(const ServerConfig& config);

// The longest word, as tokenizing sees it: a text without a single space between two other
// characters.
class LongestWord {
 public:
  // `joined`: the text directly follows the last joined one.
  void Add(std::string_view text, bool joined);
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
  std::size_t open_ = 0;  // bytes of the word at the end of the last joined text
};

// The parts of a request's body.
struct BodyParts {
  std::size_t bytes = 0, values = 0, containers = 0;
  LongestWord words = {};

  // Bytes that parsing takes besides the body, at most: JSON values, template values and the
  // prompt.
  std::size_t cost() const;
};

// The estimated cost of a JSON body, from a scan before it is parsed.
struct BodyCost {
  std::size_t bytes = 0;        // as BodyParts::cost
  std::size_t members = 0;      // members of the body's largest object
  std::string_view field = {};  // field with that object; empty = the body
};
BodyCost CostOf(std::string_view body);

// Objects with more members are rejected: some of the work on them is quadratic.
inline constexpr std::size_t kMembersMax = 1024;

// InvalidArgument: the body takes more memory than the lane of large requests (WorkMemory) has, as
// kTooLarge with the name of the setting, or an object has too many members.
Status CheckCost(const BodyCost& cost, const RequestSizes& sizes);

// The limit for a text that a template makes of a request's messages: the memory of the lane of
// large requests. A longer text is not made.
std::size_t MadeTextBytesMax(const RequestSizes& sizes);
// InvalidArgument, kTooLarge: tokenizing `text` takes more memory than the lane of large requests
// has.
Status CheckMadeText(std::string_view text, const RequestSizes& sizes);

// Returns freed memory to the system after work on `values_bytes`, if that is much; threads' heaps
// would keep it.
void TrimHeap(std::size_t values_bytes);

// Answers up to this size, with the data they are made from, are within the memory plan's margin.
inline constexpr std::size_t kSmallAnswerBytes = 64 << 10;

// ResourceExhausted: the error for a client for which RequestMemory::Hold::ReserveForAnswer is
// false.
Status UnreadAnswers();

// The memory of request bodies and of the data for large answers. A client (a tenant) holds at most
// half of it, and a quarter is for clients that hold little. So there is room for others beside one
// large client, and for ordinary requests beside any two. Thread-safe.
class RequestMemory {
 public:
  // A connection's share. Thread-compatible; destroyed before its RequestMemory.
  class Hold {
   public:
    Hold(RequestMemory& memory, std::string client) : memory_(memory), client_(std::move(client)) {}
    ~Hold() { memory_.Set(*this, 0); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

    // ResourceExhausted: there is no room for so many bytes now; the bytes held before stay held.
    Status Grow(std::size_t bytes);
    // Grows beyond the limit, for an answer that exists already. That keeps out this client's later
    // bodies, not others'.
    void Force(std::size_t bytes);
    // Takes `bytes` for a large answer before it is written, or returns false. Allowed while the
    // client's unread answers are below its half and all clients' below the whole; for a client's
    // first answer, while the sum over clients, each counted up to an eighth of the whole, is below
    // the whole.
    bool ReserveForAnswer(std::size_t bytes);

   private:
    friend class RequestMemory;
    RequestMemory& memory_;
    const std::string client_;
    std::size_t bytes_ = 0;
    bool of_answer_ = false;
  };

  // `body_bytes_max`: a client may always hold one body of this size.
  RequestMemory(std::size_t bytes_max, std::size_t body_bytes_max);

  std::size_t held() const;
  // Returns the bytes of bodies and of answers.
  std::size_t in_use() const;
  // True once after much was held and nearly all of it was freed, and once after RequestTrim: the
  // caller then returns freed heap memory to the system.
  bool TakeTrimHint();
  // Other code has freed much memory, or `bytes`, which add up.
  void RequestTrim();
  void CountFreed(std::size_t bytes);

 private:
  struct Share {
    std::size_t bytes = 0;    // bodies and answers
    std::size_t answers = 0;  // answers alone
  };
  bool HasRoomForAnswer(const std::string& client) const REQUIRES(mutex_);
  bool HasRoom(const Hold& hold, std::size_t bytes) const REQUIRES(mutex_);
  void Set(Hold& hold, std::size_t bytes);
  void SetLocked(Hold& hold, std::size_t bytes) REQUIRES(mutex_);

  const std::size_t bytes_max_, client_max_, large_max_;
  mutable base::Mutex mutex_;
  std::size_t held_ GUARDED_BY(mutex_) = 0;     // bodies
  std::size_t answers_ GUARDED_BY(mutex_) = 0;  // answers not yet read
  std::size_t peak_ GUARDED_BY(mutex_) = 0;     // both, since the last hint
  std::size_t freed_ GUARDED_BY(mutex_) = 0;    // by other code, since the last hint
  bool trim_requested_ GUARDED_BY(mutex_) = false;
  std::map<std::string, Share> by_client_ GUARDED_BY(mutex_);
};

}  // namespace thermocline::server
