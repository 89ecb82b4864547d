// The API's description against what the program does: its routes, and the fields it reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "server/http/routes.h"
#include "server/openai/chat_request.h"
#include "server/openai/completion_request.h"
#include "server/web/page.h"

namespace thermocline {
namespace {

Json Description() { return *base::ParseJson(web::kOpenApi); }

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) { return std::tolower(c); });
  return text;
}

TEST(OpenApi, DescribesEveryRouteAndNoOther) {
  std::set<std::pair<std::string, std::string>> described, served;
  const Json description = Description();
  for (const auto& [path, methods] : description.Find("paths")->as_object()) {
    for (const auto& [method, operation] : methods.as_object())
      if (method != "parameters") described.emplace(method, path);
  }
  for (const auto& [method, path] : http::RouteTable()) served.emplace(Lower(method), path);
  EXPECT_EQ(described, served);
}

// `fields` beside the properties of schema `name`, with their bounds.
void ExpectFields(const std::string& name, const openai::FieldLog& fields) {
  const Json description = Description();
  const Json* schema = description.Find("components")->Find("schemas")->Find(name);
  ASSERT_NE(schema, nullptr) << name;
  std::set<std::string> described, read;
  for (const auto& [key, unused] : schema->Find("properties")->as_object()) described.insert(key);
  for (const auto& [key, bounds] : fields) {
    read.insert(key);
    const Json* property = schema->Find("properties")->Find(key);
    if (property == nullptr || !bounds.min.has_value()) continue;
    for (const auto& [bound, value] : {std::pair("minimum", bounds.min), {"maximum", bounds.max}}) {
      const Json* stated = property->Find(bound);
      ASSERT_NE(stated, nullptr) << name << "." << key << " has no " << bound;
      EXPECT_EQ(stated->as_double(), *value) << name << "." << key;
    }
  }
  EXPECT_EQ(described, read) << name;
}

TEST(OpenApi, DescribesEveryFieldOfAChat) {
  openai::FieldLog log;
  (void)openai::ParseChatRequest(R"({"messages":[{"role":"user","content":"x"}],"seed":1})", {},
                                 &log);
  ExpectFields("ChatRequest", log);
}

TEST(OpenApi, DescribesEveryFieldOfACompletion) {
  openai::FieldLog log;
  (void)openai::ParseCompletionRequest(R"({"prompt":"x","seed":1,"best_of":1})", {}, &log);
  ExpectFields("CompletionRequest", log);
}

}  // namespace
}  // namespace thermocline
