#include "server/core/examined_model.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "engine/base/index.h"
#include "engine/base/json.h"
#include "engine/base/json_text.h"
#include "engine/base/log.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/piped_process.h"
#include "engine/chat.h"
#include "server/core/model_format.h"
#include "server/core/model_links.h"

namespace thermocline::server {
namespace {

// Sanitizers map shadows of all addresses.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kShadowed = true;
#elif defined(__has_feature)
constexpr bool kShadowed = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kShadowed = false;
#endif
constexpr std::int64_t kMemoryMin = kShadowed ? std::int64_t{1} << 50 : 112 << 20,
                       kMemoryMax = kShadowed ? kMemoryMin : 1 << 30;
constexpr unsigned kCpuSeconds = 10;
constexpr std::chrono::seconds kMost{60};
constexpr std::chrono::milliseconds kLook{50};  // for a cancellation
constexpr std::size_t kOutputMax = 64 << 10;

// The program's output, or why it had none.
Result<std::string> OutputOf(base::PipedProcess& process, const std::function<bool()>& ends) {
  const auto until = std::chrono::steady_clock::now() + kMost;
  std::string output;
  for (;;) {
    if (ends()) return base::Cancelled("the examination was ended");
    if (std::chrono::steady_clock::now() > until || output.size() > kOutputMax)
      return base::FailedPrecondition("reading the model's files does not end");
    if (!process.WaitForOutput(kLook)) continue;
    const std::string more = process.Read();
    if (more.empty()) return output;
    output += more;
  }
}

std::int64_t IntOf(const Json& json, const char* key) {
  const Json* value = json.Find(key);
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

ModelFacts FactsOf(const Json& json) {
  ModelFacts facts;
  facts.bytes = IntOf(json, "bytes");
  facts.modified = IntOf(json, "modified");
  facts.architecture = TextOf(json, "architecture");
  facts.weight_type = TextOf(json, "weight_type");
  facts.num_parameters = IntOf(json, "parameters");
  facts.context_length_trained = static_cast<int>(IntOf(json, "context"));
  return facts;
}

// Reads and makes all that loading does, beside weights.
Status ReadAll(const std::string& path) {
  ASSIGN_OR_RETURN(const auto tokenizer, ReadTokenizer(path));
  if (tokenizer == nullptr) return OkStatus();  // loading says so
  const auto chat = ChatFormatter::Create(*tokenizer);
  if (chat.ok()) (void)FormatOfModel(**chat, *tokenizer);
  return OkStatus();
}

}  // namespace

Examination::Clock::time_point Examination::again_at() const {
  constexpr Clock::duration kLeast = std::chrono::seconds(1), kMostPause = std::chrono::minutes(1);
  return ended + std::clamp(20 * (ended - began), kLeast, kMostPause);
}

std::string FilesOf(const std::string& path) {
  constexpr int kFilesMax = 2000;
  namespace fs = std::filesystem;
  std::string out;
  const auto add = [&out](const fs::path& file) {
    struct ::stat info {};
    if (::stat(file.c_str(), &info) != 0) return;
    out += StrCat(file.filename().string(), ":", info.st_dev, ":", info.st_ino, ":", info.st_size,
                  ":", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, ";");
  };
  add(path);
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  const fs::path file = path;
  const std::string name = file.filename().string();
  const std::size_t part = name.find("-00001-of-");
  if (!folder && part == std::string::npos) return out;
  std::vector<fs::path> names;
  for (fs::directory_iterator at(folder ? file : file.parent_path(), error), end;
       !error && at != end && base::IntSize(names) < kFilesMax; at.increment(error)) {
    const bool counts = folder || at->path().filename().string().starts_with(name.substr(0, part));
    if (counts) names.push_back(at->path());
  }
  std::sort(names.begin(), names.end());
  for (const fs::path& each : names) add(each);
  return out;
}

namespace {

Status Examine(const std::string& path, std::int64_t most, const std::function<bool()>& ends,
               Examination& out) {
  RETURN_IF_ERROR(CheckLinks(path));
  ASSIGN_OR_RETURN(const auto process,
                   base::PipedProcess::Start({"/proc/self/exe", kExamineFlag, path},
                                             base::PipedProcess::Errors::kOwn));
  process->Limit(static_cast<std::uint64_t>(most), kCpuSeconds);
  ASSIGN_OR_RETURN(const std::string output, OutputOf(*process, ends));
  const auto json = base::ParseJson(output);
  if (process->Wait() != 0 || !json.ok())
    return base::FailedPrecondition("reading the model's files takes more than ",
                                    base::HumanBytes(static_cast<std::size_t>(most)), " or ",
                                    kCpuSeconds, " s, or breaks the reader");
  if (const std::string error = TextOf(*json, "error"); !error.empty())
    return base::FailedPrecondition(error);
  out.facts = FactsOf(*json);
  out.peak_bytes = IntOf(*json, "peak");
  return OkStatus();
}

// The most memory that this process has had, in bytes.
std::int64_t PeakBytes() {
  rusage usage{};
  constexpr std::int64_t kKiB = 1024;
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss * kKiB : 0;
}

}  // namespace

Examination ExamineModel(const std::string& path, std::int64_t budget_bytes,
                         const std::function<bool()>& ends) {
  constexpr std::int64_t kShare = 3;
  const std::int64_t most =
      budget_bytes > 0 ? std::clamp(budget_bytes / kShare, kMemoryMin, kMemoryMax) : kMemoryMax;
  Examination out{.files = FilesOf(path), .status = {}, .facts = {}};
  out.status = Examine(path, most, ends, out);
  out.ended = Examination::Clock::now();
  return out;
}

int PrintExamination(const std::string& path) {
  base::ConfigureLog(base::LogLevel::kError, false);
  const Status read =
      base::OrNoMemory("the model's header", [&]() -> Status { return ReadAll(path); });
  const ModelFacts facts = read.ok() ? ReadModelFacts(path) : ModelFacts{};
  const Json out = Json::Object{{"error", read.ok() ? "" : read.message()},
                                {"peak", PeakBytes()},
                                {"bytes", facts.bytes},
                                {"modified", static_cast<std::int64_t>(facts.modified)},
                                {"architecture", facts.architecture},
                                {"weight_type", facts.weight_type},
                                {"parameters", facts.num_parameters},
                                {"context", facts.context_length_trained}};
  std::fputs(out.Dump().c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace thermocline::server
