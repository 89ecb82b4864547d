#include "server/batch/batch_file.h"

#include <algorithm>
#include <array>

#include "engine/base/file.h"
#include "engine/base/strings.h"

namespace thermocline::batch {
namespace {

constexpr std::size_t kIdBytesMax = 512;
constexpr std::uint64_t kFileBytesMax = std::uint64_t{8} << 30;
// Routes whose answers are one JSON object.
constexpr std::array kUrls = {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                              "/v1/embeddings",       "/v1/rerank",      "/v1/messages"};

Result<std::string> TextOf(const Json& line, const char* field) {
  const Json* value = line.Find(field);
  if (value == nullptr || !value->is_string() || value->as_string().empty())
    return base::InvalidArgument(field, " must be a string that is not empty");
  return value->as_string();
}

Result<BatchRequest> ParseRequest(std::string_view text) {
  ASSIGN_OR_RETURN(const Json line, base::ParseJson(text));
  if (!line.is_object()) return base::InvalidArgument("must be an object, is ", line.type_name());
  for (const auto& [field, value] : line.as_object()) {
    static constexpr std::array kFields = {"custom_id", "method", "url", "body"};
    if (std::find(kFields.begin(), kFields.end(), field) == kFields.end())
      return base::InvalidArgument(field, " is not known; there are custom_id, method, url, body");
  }
  BatchRequest request;
  ASSIGN_OR_RETURN(request.custom_id, TextOf(line, "custom_id"));
  if (request.custom_id.size() > kIdBytesMax)
    return base::InvalidArgument("custom_id has ", request.custom_id.size(), " bytes; at most ",
                                 kIdBytesMax, " are supported");
  ASSIGN_OR_RETURN(request.url, TextOf(line, "url"));
  if (line.Find("method") != nullptr) {
    ASSIGN_OR_RETURN(const std::string method, TextOf(line, "method"));
    if (method != "POST") return base::InvalidArgument("method is ", method, "; it must be POST");
  }
  if (std::find(kUrls.begin(), kUrls.end(), request.url) == kUrls.end())
    return base::InvalidArgument(
        "url is ", request.url, "; it must be one of ",
        "/v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, "
        "/v1/rerank, /v1/messages");
  const Json* body = line.Find("body");
  if (body == nullptr || !body->is_object()) return base::InvalidArgument("body must be an object");
  const Json* stream = body->Find("stream");
  if (stream != nullptr && stream->is_bool() && stream->as_bool())
    return base::InvalidArgument("body.stream is true: the answers of a file are whole");
  request.body = body->Dump();
  return request;
}

}  // namespace

Result<std::vector<BatchRequest>> ReadRequests(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, base::ReadFileToString(path, kFileBytesMax));
  std::vector<BatchRequest> requests;
  std::unordered_set<std::string> ids;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    auto request = ParseRequest(line);
    if (request.ok() && !ids.insert(request->custom_id).second)
      request = base::InvalidArgument("custom_id ", request->custom_id, " is an earlier line's");
    if (!request.ok())
      return base::InvalidArgument(path, ":", number, ": ", request.status().message());
    requests.push_back(*std::move(request));
  }
  if (requests.empty()) return base::InvalidArgument(path, ": holds no request");
  return requests;
}

Result<std::unique_ptr<AnswerFile>> AnswerFile::Open(const std::string& path,
                                                     const std::vector<BatchRequest>& requests) {
  if (base::PathExists(path))
    return base::FailedPrecondition(path, " is there already: remove it, or name another file");
  ASSIGN_OR_RETURN(auto part, base::PartFile::Open(path));
  auto file = std::unique_ptr<AnswerFile>(new AnswerFile(std::move(part)));
  std::unordered_set<std::string_view> asked;
  for (const BatchRequest& request : requests) asked.insert(request.custom_id);
  RETURN_IF_ERROR(file->ReadEarlier(asked));
  return file;
}

// An incomplete last line is dropped, and its request answered again.
Status AnswerFile::ReadEarlier(const std::unordered_set<std::string_view>& asked) {
  std::string text(file_->size(), '\0');
  RETURN_IF_ERROR(file_->ReadAt(0, std::as_writable_bytes(std::span(text))));
  while (true) {
    const std::size_t end = text.find('\n', end_);
    if (end == std::string::npos) return file_->Truncate(end_);
    const auto line = base::ParseJson(std::string_view(text).substr(end_, end - end_), 512);
    const Json* id = line.ok() ? line->Find("custom_id") : nullptr;
    const Json* response = line.ok() ? line->Find("response") : nullptr;
    const Json* status = response != nullptr ? response->Find("status_code") : nullptr;
    if (id == nullptr || !id->is_string() || status == nullptr || !status->is_int())
      return base::DataLoss(file_->part_path(), ": its line ", answered_.size() + 1,
                            " is no answer of a batch: remove it, or name another output");
    if (!asked.contains(id->as_string()))
      return base::FailedPrecondition(
          file_->part_path(), ": answers ", id->as_string(),
          ", which is not asked here: remove it, or name another output");
    answered_.insert(id->as_string());
    if (status->as_int() >= 400) ++failed_;
    end_ = end + 1;
  }
}

Status AnswerFile::Add(const BatchRequest& request, int status, std::string_view body) {
  std::string line = StrCat("{\"id\":\"batch_req_", answered_.size(), "\",\"custom_id\":");
  base::AppendJsonString(line, request.custom_id);
  line += StrCat(",\"response\":{\"status_code\":", status, ",\"request_id\":");
  base::AppendJsonString(line, request.custom_id);
  line += ",\"body\":";
  if (body.find('\n') == std::string_view::npos) {
    line += body;
  } else {
    ASSIGN_OR_RETURN(const Json whole, base::ParseJson(body, 512));
    line += whole.Dump();
  }
  line += "},\"error\":null}\n";
  RETURN_IF_ERROR(file_->WriteAt(end_, std::as_bytes(std::span(line))));
  end_ += line.size();
  answered_.insert(request.custom_id);
  return OkStatus();
}

}  // namespace thermocline::batch
