// The two files of a batch: what is asked, and what is answered.
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

// InvalidArgument with file and line, and what is wrong with it.
Result<std::vector<BatchRequest>> ReadRequests(const std::string& path);

// Grows by a line with each answer. Thread-compatible.
class AnswerFile {
 public:
  // Goes on behind the whole lines that an earlier run has written. Unavailable: another process
  // writes it. DataLoss: what is there are no answers. FailedPrecondition: they are answers to
  // other requests, or all are there.
  static Result<std::unique_ptr<AnswerFile>> Open(const std::string& path,
                                                  const std::vector<BatchRequest>& requests);

  bool Has(const std::string& custom_id) const { return answered_.contains(custom_id); }
  // The requests that an earlier run has answered with a status of 400 or more.
  int failed() const { return failed_; }
  Status Add(const BatchRequest& request, int status, std::string_view body);
  // Every request is answered: the part becomes the file.
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
