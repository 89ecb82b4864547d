#include "server/core/request_memory.h"

#include <malloc.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/system_memory.h"
#include "server/core/work_memory.h"

namespace thermocline::server {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kLeast = 24 * kMiB;
constexpr std::size_t kBudgetShare = 8;  // the limit is this fraction of the memory budget
constexpr std::size_t kGrpcBytesMax = 256 * kMiB;
// Bytes of a value with the spare capacity of growing arrays, of a nested container, the number of
// copies of a text before tokenizing, and bytes per byte of a word that is merged as a whole. The
// memory plan's margin covers words up to kWordBytes.
constexpr std::size_t kScalarBytes = 112, kContainerBytes = 288, kTextCopies = 5;
constexpr std::size_t kWordBytes = 64 << 10, kMergedBytes = 110;
constexpr std::size_t kFieldNameMax = 64;
constexpr std::size_t kTrimFrom = 4 * kMiB, kTrimBelow = kMiB;
constexpr std::size_t kFirstAnswers = 8;  // as many clients can have a first answer of any size
// A quarter of the memory for bodies is for clients that hold at most a sixteenth of it.
constexpr std::size_t kForSmall = 4, kSmallClient = 16;

// Returns the position of the closing quote of the JSON string that begins at `begin`.
std::size_t EndOfText(std::string_view body, std::size_t begin) {
  std::size_t at = begin;
  while (at < body.size() && body[at] != '"') at += body[at] == '\\' ? 2 : 1;
  return std::min(at, body.size());
}

// Counts the members of the largest object.
class Members {
 public:
  // Takes a character outside of strings, and the string before it.
  void Take(char c, std::string_view text) {
    if (c == '{' || c == '[') Open();
    if ((c == '}' || c == ']') && !open_.empty())
      too_deep_ > 0 ? (void)--too_deep_ : open_.pop_back();
    if (c == ':' && !open_.empty()) Count(text);
  }
  std::size_t most() const { return most_; }
  std::string_view field() const { return field_of_most_; }

 private:
  static constexpr std::size_t kLevelsMax = 256;  // more than the parser accepts
  void Open() { open_.size() < kLevelsMax ? open_.push_back(0) : (void)++too_deep_; }
  void Count(std::string_view text) {
    if (open_.size() == 1) field_ = text;
    if (++open_.back() <= most_) return;
    most_ = open_.back();
    field_of_most_ = open_.size() == 1 ? std::string_view() : field_;
  }

  std::vector<std::size_t> open_;
  std::size_t too_deep_ = 0, most_ = 0;
  std::string_view field_, field_of_most_;
};

void CountMarks(std::string_view json, BodyParts& parts) {
  for (const char c : json) {
    parts.values += c == ',' || c == ':';
    parts.containers += c == '[' || c == '{';
  }
}

}  // namespace

RequestSizes RequestSizesOf(const ServerConfig& config) {
  const std::size_t budget = base::MemoryBudget(config.model.memory.budget_bytes);
  const std::size_t all = std::min(static_cast<std::size_t>(config.request_memory_bytes),
                                   std::max(kLeast, budget / kBudgetShare));
  return {.bodies = all / 2,
          .values = all / 2,
          .grpc = config.grpc_address.empty() ? 0 : std::min(kGrpcBytesMax, all)};
}

void LongestWord::Add(std::string_view text, bool joined) {
  std::size_t word = joined ? open_ : 0, begin = 0;
  for (std::size_t at = 1; at + 1 < text.size(); ++at) {
    if (text[at] != ' ' || text[at - 1] == ' ' || text[at + 1] == ' ') continue;
    bytes_ = std::max(bytes_, word + at - begin);
    word = 0;
    begin = at;
  }
  word += text.size() - begin;
  bytes_ = std::max(bytes_, word);
  if (joined) open_ = word;
}

std::size_t BodyParts::cost() const {
  return values * kScalarBytes + containers * kContainerBytes + bytes * kTextCopies +
         (words.bytes() > kWordBytes ? words.bytes() * kMergedBytes : 0);
}

BodyCost CostOf(std::string_view body) {
  BodyParts parts{.bytes = body.size(), .values = 1};
  Members members;
  std::string_view last_text, key;
  char last_mark = 0;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (c == '"') {
      last_text = body.substr(i + 1, EndOfText(body, i + 1) - i - 1);
      // A call's arguments are JSON inside a string, which is parsed, too.
      if (last_mark == ':' && (key == "arguments" || key.find('\\') != key.npos))
        CountMarks(last_text, parts);
      // Strings in a list are separate prompts; strings in objects may be parts of one prompt.
      parts.words.Add(last_text, last_mark == ':');
      i += last_text.size() + 1;
      continue;
    }
    if (c == ',' || c == ':' || c == '[' || c == '{') last_mark = c;
    if (c == ':') key = last_text;
    CountMarks({&c, 1}, parts);
    members.Take(c, last_text);
  }
  return {.bytes = parts.cost(), .members = members.most(), .field = members.field()};
}

void TrimHeap(std::size_t values_bytes) {
  if (values_bytes >= kTrimFrom) ::malloc_trim(0);
}

Status CheckCost(const BodyCost& cost, const RequestSizes& sizes) {
  const std::size_t bytes_max = WorkMemory::LargeMax(sizes.values);
  if (cost.bytes > bytes_max) {
    return base::InvalidArgument(
               "reading this request may take ", base::HumanBytes(cost.bytes),
               ", and one request has ", base::HumanBytes(bytes_max),
               " at most: send less at a time, or set server.request_memory_mib or "
               "memory.budget_bytes higher")
        .WithReason(Reason::kTooLarge);
  }
  if (cost.members <= kMembersMax) return OkStatus();
  const Status refused = base::InvalidArgument("an object of the body has ", cost.members,
                                               " members; at most ", kMembersMax, " are read");
  return cost.field.empty() || cost.field.size() > kFieldNameMax ? refused
                                                                 : refused.WithField(cost.field);
}

std::size_t MadeTextBytesMax(const RequestSizes& sizes) {
  return WorkMemory::LargeMax(sizes.values) / kTextCopies;
}

Status CheckMadeText(std::string_view text, const RequestSizes& sizes) {
  BodyParts parts{.bytes = text.size()};
  parts.words.Add(text, false);
  return CheckCost({.bytes = parts.cost()}, sizes);
}

RequestMemory::RequestMemory(std::size_t bytes_max, std::size_t body_bytes_max)
    : bytes_max_(bytes_max),
      client_max_(std::max(bytes_max / 2, body_bytes_max)),
      large_max_(std::min(bytes_max, std::max(bytes_max - bytes_max / kForSmall, body_bytes_max))) {
}

std::size_t RequestMemory::held() const {
  const base::MutexLock lock(mutex_);
  return held_;
}

std::size_t RequestMemory::in_use() const {
  const base::MutexLock lock(mutex_);
  return held_ + answers_;
}

bool RequestMemory::Hold::ReserveForAnswer(std::size_t bytes) {
  const base::MutexLock lock(memory_.mutex_);
  if (!memory_.HasRoomForAnswer(client_)) return false;
  of_answer_ = true;
  memory_.SetLocked(*this, bytes);
  return true;
}

bool RequestMemory::HasRoomForAnswer(const std::string& client) const {
  const auto found = by_client_.find(client);
  const std::size_t of_client = found == by_client_.end() ? 0 : found->second.answers;
  if (of_client > 0) return of_client < client_max_ && answers_ < bytes_max_;
  // One client's huge answer does not keep out the first answer of others; many clients' do.
  std::size_t counted = 0;
  for (const auto& [name, share] : by_client_)
    counted += std::min(share.answers, bytes_max_ / kFirstAnswers);
  return counted < bytes_max_;
}

Status UnreadAnswers() {
  return base::ResourceExhausted(
             "this client's answers that it has not read hold its half of the memory for bodies and "
             "answers (server.request_memory_mib), or everybody's hold all of it; read them, and "
             "try again")
      .WithReason(Reason::kRequestMemory);
}

bool RequestMemory::TakeTrimHint() {
  const base::MutexLock lock(mutex_);
  const bool asked = std::exchange(trim_requested_, false);
  if (peak_ < kTrimFrom || held_ + answers_ > kTrimBelow) return asked;
  peak_ = held_ + answers_;
  return true;
}

void RequestMemory::CountFreed(std::size_t bytes) {
  const base::MutexLock lock(mutex_);
  freed_ += bytes;
  if (freed_ < kTrimFrom) return;
  freed_ = 0;
  trim_requested_ = true;
}

void RequestMemory::RequestTrim() {
  const base::MutexLock lock(mutex_);
  trim_requested_ = true;
}

Status RequestMemory::Hold::Grow(std::size_t bytes) {
  const base::MutexLock lock(memory_.mutex_);
  if (memory_.HasRoom(*this, bytes)) {
    memory_.SetLocked(*this, bytes);
    return OkStatus();
  }
  const bool own = memory_.held_ - bytes_ + bytes <= memory_.large_max_;
  return base::ResourceExhausted(own ? "this client's other requests hold its half of"
                                     : "other requests hold too much of",
                                 " the memory for bodies and answers, ",
                                 base::HumanBytes(memory_.bytes_max_),
                                 " (server.request_memory_mib); try again later")
      .WithReason(Reason::kRequestMemory);
}

void RequestMemory::Hold::Force(std::size_t bytes) {
  of_answer_ = true;
  memory_.Set(*this, bytes);
}

bool RequestMemory::HasRoom(const Hold& hold, std::size_t bytes) const {
  const auto found = by_client_.find(hold.client_);
  const std::size_t had = found == by_client_.end() ? 0 : found->second.bytes;
  const std::size_t of_client = had - hold.bytes_ + bytes, held = held_ - hold.bytes_ + bytes;
  const bool is_small = of_client <= bytes_max_ / kSmallClient;
  return held <= (is_small ? bytes_max_ : large_max_) && of_client <= client_max_;
}

void RequestMemory::Set(Hold& hold, std::size_t bytes) {
  const base::MutexLock lock(mutex_);
  SetLocked(hold, bytes);
}

void RequestMemory::SetLocked(Hold& hold, std::size_t bytes) {
  if (bytes == hold.bytes_) return;
  Share& of_client = by_client_[hold.client_];
  const auto change = [&](std::size_t& held) { held = held - hold.bytes_ + bytes; };
  change(of_client.bytes);
  if (hold.of_answer_) change(of_client.answers);
  change(hold.of_answer_ ? answers_ : held_);
  peak_ = std::max(peak_, held_ + answers_);
  hold.bytes_ = bytes;
  if (of_client.bytes == 0) by_client_.erase(hold.client_);
}

}  // namespace thermocline::server
