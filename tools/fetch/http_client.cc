#include "tools/fetch/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "engine/base/bytes.h"

namespace thermocline::tools {
namespace {

constexpr int kRedirectsMax = 10, kTriesMax = 3, kFirstDelaySeconds = 2, kDelaySecondsMax = 120;
constexpr long kConnectSeconds = 10, kSlowSeconds = 30, kBytesPerSecondMin = 1024;
constexpr std::size_t kHeaderBytesMax = 256 << 10, kJsonBytesMax = 16 << 20;
constexpr std::int64_t kAdvanceBytes = 1 << 20;

struct CurlEnd {
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Handle = std::unique_ptr<CURL, CurlEnd>;

// One request and its answer, without redirects.
struct Exchange {
  const BodyHandler& on_body;
  CURL* curl;
  HttpResponse response = {};
  std::size_t header_bytes = 0;
  Status status = {};  // of on_body
};

std::string Trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1));
}

std::size_t OnHeader(const char* data, std::size_t, std::size_t bytes, void* context) {
  auto& exchange = *static_cast<Exchange*>(context);
  const std::string_view line(data, bytes);
  exchange.header_bytes += bytes;
  if (exchange.header_bytes > kHeaderBytesMax) return 0;
  if (line.starts_with("HTTP/")) exchange.response.headers.clear();
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return bytes;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), base::ToLower);
  exchange.response.headers[name] = Trimmed(line.substr(colon + 1));
  return bytes;
}

std::size_t OnBody(const char* data, std::size_t, std::size_t bytes, void* context) {
  auto& exchange = *static_cast<Exchange*>(context);
  curl_easy_getinfo(exchange.curl, CURLINFO_RESPONSE_CODE, &exchange.response.status);
  // The page of an error or a redirect is not read.
  if (exchange.response.status != 200 && exchange.response.status != 206) return 0;
  exchange.status = exchange.on_body(exchange.response, std::as_bytes(std::span(data, bytes)));
  return exchange.status.ok() ? bytes : 0;
}

// "https://host:port", in lower case with the default port; "" for other schemes.
std::string OriginOf(const std::string& url) {
  const std::unique_ptr<CURLU, CurlEnd> parsed(curl_url());
  if (curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return "";
  std::string origin;
  for (const CURLUPart part : {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT}) {
    char* text = nullptr;
    if (curl_url_get(parsed.get(), part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return "";
    origin += StrCat(part == CURLUPART_HOST ? "://" : part == CURLUPART_PORT ? ":" : "", text);
    curl_free(text);
  }
  std::transform(origin.begin(), origin.end(), origin.begin(), base::ToLower);
  return origin.starts_with("http") ? origin : "";
}

Status CurlStatus(CURLcode code, const std::string& url, const char* detail) {
  const std::string text =
      StrCat(OriginOf(url), ": ", detail[0] != 0 ? detail : curl_easy_strerror(code));
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_SSL_CACERT_BADFILE:
      return base::FailedPrecondition(text);
    default:
      return base::Unavailable(text);
  }
}

Result<HttpResponse> GetOnce(const HttpRequest& request, const std::string& url, bool with_token,
                             const BodyHandler& on_body) {
  const Handle curl(curl_easy_init());
  CHECK(curl != nullptr);
  Exchange exchange{.on_body = on_body, .curl = curl.get()};
  std::unique_ptr<curl_slist, CurlEnd> headers;
  const auto add = [&](const std::string& line) {
    headers.reset(curl_slist_append(headers.release(), line.c_str()));
  };
  for (const std::string& line : request.headers) add(line);
  if (with_token) add("Authorization: Bearer " + request.token);
  char detail[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl.get(), CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl.get(), CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl_easy_setopt(curl.get(), CURLOPT_USERAGENT, "thermocline");
  curl_easy_setopt(curl.get(), CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_LIMIT, kBytesPerSecondMin);
  curl_easy_setopt(curl.get(), CURLOPT_LOW_SPEED_TIME, kSlowSeconds);
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT, static_cast<long>(request.seconds_max));
  curl_easy_setopt(curl.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl.get(), CURLOPT_HEADERFUNCTION, OnHeader);
  curl_easy_setopt(curl.get(), CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, OnBody);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(curl.get(), CURLOPT_ERRORBUFFER, detail);
  const CURLcode code = curl_easy_perform(curl.get());
  RETURN_IF_ERROR(exchange.status);
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &exchange.response.status);
  const long status = exchange.response.status;
  const bool unread = code == CURLE_WRITE_ERROR && status >= 300;  // OnBody stopped at its page
  if (code != CURLE_OK && !unread) return CurlStatus(code, url, detail);
  const char* next = nullptr;
  if (status >= 300 && status < 400) curl_easy_getinfo(curl.get(), CURLINFO_REDIRECT_URL, &next);
  exchange.response.url = url;
  exchange.response.redirect = next == nullptr ? "" : next;
  return std::move(exchange.response);
}

}  // namespace

std::string HttpResponse::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

Result<HttpResponse> HttpGet(const HttpRequest& request, const BodyHandler& on_body) {
  const std::string origin = OriginOf(request.url);
  if (origin.empty())
    return base::FailedPrecondition("'", request.url, "' is no http or https address");
  std::string url = request.url;
  for (int i = 0; i <= kRedirectsMax; ++i) {
    const bool with_token = !request.token.empty() && OriginOf(url) == origin;
    ASSIGN_OR_RETURN(HttpResponse response, GetOnce(request, url, with_token, on_body));
    if (response.redirect.empty()) return response;
    const std::string next = OriginOf(response.redirect);
    if (next.empty() || (origin.starts_with("https:") && !next.starts_with("https:")))
      return base::FailedPrecondition(
          origin, ": redirects to an address that is not followed: it is no https address");
    url = response.redirect;
  }
  return base::FailedPrecondition(origin, ": more than ", kRedirectsMax,
                                  " redirects; a proxy or a mirror (HF_ENDPOINT) is wrong");
}

Status WithRetries(const std::string& what, const std::function<Status()>& attempt,
                   const std::function<std::int64_t()>& advance) {
  std::int64_t reached = advance();
  for (int tries = 1;; ++tries) {
    const Status status = attempt();
    if (status.code() != StatusCode::kUnavailable) return status;
    if (advance() - reached >= kAdvanceBytes) tries = 1, reached = advance();
    if (tries == kTriesMax)
      return base::Unavailable(status.message(), " (", kTriesMax,
                               " tries); run the same command again, and it goes on from there");
    std::int64_t delay = std::int64_t{kFirstDelaySeconds} << (tries - 1);
    for (const auto& [name, value] : status.numbers())
      if (name == "retry_after_s") delay = value;
    if (delay > kDelaySecondsMax)
      return base::Unavailable(status.message(), "; the server asks to wait ", delay,
                               " s: try again then");
    std::fprintf(stderr, "%s: %s; next try in %lld s\n", what.c_str(), status.message().c_str(),
                 static_cast<long long>(delay));
    std::this_thread::sleep_for(std::chrono::seconds(delay));
  }
}

Status CheckTransient(const HttpResponse& response) {
  if (response.status != 408 && response.status != 429 && response.status < 500) return OkStatus();
  Status status = base::Unavailable(OriginOf(response.url), ": answers ", response.status,
                                    response.status == 429 ? ", too many requests" : "");
  const auto delay = base::ParseNumber<std::int64_t>(response.Header("retry-after"));
  if (delay.has_value() && *delay >= 0) status = status.WithNumber("retry_after_s", *delay);
  return status;
}

Result<Json> GetJson(const HttpRequest& request, HttpResponse& response) {
  std::string text;
  const auto attempt = [&]() -> Status {
    text.clear();
    ASSIGN_OR_RETURN(
        response,
        HttpGet(request, [&](const HttpResponse&, std::span<const std::byte> bytes) -> Status {
          if (text.size() + bytes.size() > kJsonBytesMax)
            return base::DataLoss(OriginOf(request.url), ": a list of files of more than ",
                                  base::HumanBytes(kJsonBytesMax), " is not read");
          for (const std::byte byte : bytes) text.push_back(static_cast<char>(byte));
          return OkStatus();
        }));
    return CheckTransient(response);
  };
  RETURN_IF_ERROR(WithRetries(OriginOf(request.url), attempt, [] { return std::int64_t{0}; }));
  if (response.status != 200) return Json();
  auto json = base::ParseJson(text);
  if (!json.ok())
    return base::DataLoss(OriginOf(request.url),
                          ": answers with no JSON: ", json.status().message());
  return json;
}

std::string EscapePath(const std::string& path) {
  static constexpr std::string_view kPlain = "-._~/";
  std::string out;
  for (const char c : path) {
    const char lower = base::ToLower(c);
    const bool plain = (lower >= 'a' && lower <= 'z') || (c >= '0' && c <= '9') ||
                       kPlain.find(c) != std::string_view::npos;
    char escaped[4];
    std::snprintf(escaped, sizeof(escaped), "%%%02X", base::ByteOf(c));
    out += plain ? std::string(1, c) : escaped;
  }
  return out;
}

}  // namespace thermocline::tools
