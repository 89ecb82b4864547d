// The two files of a batch: requests and answers.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/part_file.h"

namespace thermocline::batch {

struct BatchRequest {
  std::string custom_id, url;
  std::string body;  // JSON
};

// InvalidArgument with file, line and reason.
Result<std::vector<BatchRequest>> ReadRequests(const std::string& path);

// Grows by one line per answer. Thread-compatible.
class AnswerFile {
 public:
  // Continues after the complete lines of an earlier run. Unavailable: another process writes it.
  // DataLoss: its lines are not answers. FailedPrecondition: they answer other requests, or every
  // request is answered.
  static Result<std::unique_ptr<AnswerFile>> Open(const std::string& path,
                                                  const std::vector<BatchRequest>& requests);

  bool Has(const std::string& custom_id) const { return answered_.contains(custom_id); }
  // Requests that an earlier run answered with a status of 400 or more.
  int failed() const { return failed_; }
  Status Add(const BatchRequest& request, int status, std::string_view body);
  // Renames the .part file to its final name. Requires: every request is answered.
  Status Commit() { return file_->Commit(); }

 private:
  explicit AnswerFile(std::unique_ptr<base::PartFile> file) : file_(std::move(file)) {}
  Status ReadEarlier(const std::unordered_set<std::string_view>& asked);

  std::unique_ptr<base::PartFile> file_;
  std::uint64_t end_ = 0;
  std::unordered_set<std::string> answered_;
  int failed_ = 0;
};

}  // namespace thermocline::batch
