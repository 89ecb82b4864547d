#include "loadtest/client/url.h"

#include <algorithm>

namespace thermocline::loadtest {
namespace {

Status Bad(std::string_view text, std::string_view why) {
  return base::InvalidArgument("'", base::Shorten(text, 200),
                               "' is no URL that can be tested: ", why,
                               "; an example is http://127.0.0.1:8080");
}

bool IsVisible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7F'; });
}

// Parses "host:port", "[::1]:port", or "host".
Status ParseAuthority(std::string_view text, std::string_view authority, Url& url) {
  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) return Bad(text, "']' is missing");
    url.host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
  } else {
    const std::size_t colon = std::min(authority.find(':'), authority.size());
    url.host = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  if (url.host.empty()) return Bad(text, "it names no host");
  if (port.empty()) {
    url.port = url.tls ? "443" : "80";
    return OkStatus();
  }
  const auto number = base::ParseNumber<int>(port.substr(1));
  if (port.front() != ':' || !number.has_value() || *number < 1 || *number > 65535)
    return Bad(text, "the port is not from 1 to 65535");
  url.port = StrCat(*number);
  return OkStatus();
}

std::string_view WithoutVersion(std::string_view path) {
  if (path.ends_with("/v1")) path.remove_suffix(3);
  return path;
}

}  // namespace

std::string Url::authority() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return StrCat(ipv6 ? "[" : "", host, ipv6 ? "]:" : ":", port);
}

std::string Url::origin() const { return StrCat(tls ? "https://" : "http://", authority()); }

Result<Url> ParseUrl(std::string_view text) {
  Url url;
  std::string_view rest = text;
  if (!IsVisible(text)) return Bad(text, "it has spaces or control characters");
  if (rest.starts_with("https://")) {
    url.tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else if (rest.find("://") != std::string_view::npos) {
    return Bad(text, "only http:// and https:// are known");
  }
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view authority = rest.substr(0, slash);
  if (authority.find('@') != std::string_view::npos)
    return Bad(text, "user names are not supported (use --api-key)");
  url.path = rest.substr(slash);
  if (rest.find_first_of("?#") != std::string_view::npos)
    return Bad(text, "it has a query or a fragment");
  while (url.path.ends_with('/')) url.path.pop_back();
  RETURN_IF_ERROR(ParseAuthority(text, authority, url));
  return url;
}

std::string ApiPath(const Url& url, std::string_view route) {
  return StrCat(WithoutVersion(url.path), "/v1/", route);
}

std::string RootPath(const Url& url, std::string_view route) {
  return StrCat(WithoutVersion(url.path), "/", route);
}

}  // namespace thermocline::loadtest
