// Compares the API's description with the program: its routes, and the fields it reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "server/core/request_limits.h"
#include "server/openai/chat_request.h"
#include "server/openai/completion_request.h"
#include "server/openai/responses_request.h"
#include "server/protocol/client_fields.h"
#include "server/protocol/embedding_request.h"
#include "server/routes/api_description.h"
#include "server/routes/routes.h"

namespace thermocline {
namespace {

Json Description() { return *base::ParseJson(routes::ApiDescription()); }

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
  for (const auto& [method, path] : routes::AllRoutes().Table())
    served.emplace(Lower(method), path);
  EXPECT_EQ(described, served);
}

// Compares `fields` with the properties of schema `name`, with their bounds.
void ExpectFields(const std::string& name, const protocol::FieldLog& fields) {
  const Json description = Description();
  const Json* schema = description.Find("components")->Find("schemas")->Find(name);
  ASSERT_NE(schema, nullptr) << name;
  std::set<std::string> described, read;
  for (const auto& [key, unused] : schema->Find("properties")->as_object()) {
    // Fields that no route reads are described if clients send them.
    const auto is = [name = key](const protocol::ClientField& field) { return field.name == name; };
    if (fields.contains(key) ||
        std::none_of(std::begin(protocol::kClientFields), std::end(protocol::kClientFields), is))
      described.insert(key);
  }
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

// The number at `path` below the schemas; -1 if there is none.
std::int64_t At(const std::vector<std::string>& path) {
  const Json description = Description();
  const Json* at = description.Find("components")->Find("schemas");
  for (const std::string& step : path) {
    const auto index = base::ParseNumber<std::size_t>(step);
    at = index.has_value() ? &at->as_array()[*index] : at->Find(step);
    if (at == nullptr) return -1;
  }
  return at->as_int();
}

TEST(OpenApi, StatesTheLimitsOfRequestsAndNoOthers) {
  using Path = std::vector<std::string>;
  for (const std::string request : {"ChatRequest", "CompletionRequest"}) {
    for (const auto& [name, count_max, bytes_max] :
         {std::tuple("stop", server::kStopsMax, server::kStopBytesMax),
          {"dry_sequence_breakers", server::kDryBreakersMax, server::kDryBreakerBytesMax}}) {
      const auto below = [&, name = name](Path path) {
        path.insert(path.begin(), {request, "properties", name, "anyOf"});
        return static_cast<std::size_t>(At(path));
      };
      EXPECT_EQ(below({"0", "maxLength"}), bytes_max) << name;
      EXPECT_EQ(below({"1", "maxItems"}), count_max) << name;
      EXPECT_EQ(below({"1", "items", "maxLength"}), bytes_max) << name;
    }
    const auto property = [&](const char* name, const char* bound) {
      return static_cast<std::size_t>(At({request, "properties", name, bound}));
    };
    EXPECT_EQ(property("stop_token_ids", "maxItems"), server::kStopTokensMax);
    EXPECT_EQ(property("logit_bias", "maxProperties"), server::kLogitBiasMax);
    EXPECT_EQ(At({request, "properties", "model", "maxLength"}), -1);
  }
  EXPECT_EQ(At({"ChatRequest", "properties", "messages", "maxItems"}),
            static_cast<std::int64_t>(server::kMessagesMax));
  EXPECT_EQ(At({"Extension", "properties", "ffn_mode", "maxLength"}),
            static_cast<std::int64_t>(server::kFfnModeBytesMax));
  EXPECT_EQ(At({"Prompt", "anyOf", "2", "maxItems"}),
            static_cast<std::int64_t>(openai::kPromptsMax));
  EXPECT_EQ(At({"TokenIds", "items", "maximum"}), INT32_MAX);
  EXPECT_EQ(At({"TokenIds", "maxItems"}), -1);
  const std::string pieces = StrCat("at most ", server::kPiecesMax, " tokens");
  EXPECT_NE(routes::ApiDescription().find(pieces), std::string_view::npos);
  // Texts may be as long as a body.
  for (const Path& path :
       {Path{"Prompt", "anyOf", "0"}, Path{"Prompt", "anyOf", "2", "items", "anyOf", "0"},
        Path{"Message", "properties", "content", "anyOf", "0"},
        Path{"Message", "properties", "content", "anyOf", "1"}}) {
    for (const char* bound : {"maxLength", "maxItems"}) {
      Path to = path;
      to.push_back(bound);
      EXPECT_EQ(At(to), -1);
    }
  }
}

TEST(OpenApi, DescribesTheMessagesThatAreRead) {
  const Json description = Description();
  const Json* fields =
      description.Find("components")->Find("schemas")->Find("Message")->Find("properties");
  const auto accepts = [](const std::string& message) {
    const auto parsed = openai::ParseChatRequest(StrCat(R"({"messages":[)", message, "]}"), {});
    return parsed.ok();
  };
  EXPECT_EQ(fields->Find("role")->Find("enum")->as_array().size(), 5);
  for (const Json& role : fields->Find("role")->Find("enum")->as_array())
    EXPECT_TRUE(accepts(StrCat(R"({"content":"x","role":)", role.Dump(), "}"))) << role.Dump();
  const std::map<std::string, std::string> values = {
      {"string", R"("x")"}, {"null", "null"}, {"array", R"([{"id":"x"}])"},
      {"object", "{}"},     {"integer", "1"}, {"boolean", "true"}};
  for (const char* name : {"name", "tool_calls", "tool_call_id"}) {
    const Json::Array& types = fields->Find(name)->Find("type")->as_array();
    for (const auto& [type, value] : values) {
      const bool described =
          std::any_of(types.begin(), types.end(),
                      [&, type = type](const Json& each) { return each.as_string() == type; });
      EXPECT_EQ(accepts(StrCat(R"({"role":"assistant","content":"x",")", name, "\":", value, "}")),
                described)
          << name << ": " << value;
    }
  }
}

TEST(OpenApi, DescribesEveryFieldOfAChat) {
  protocol::FieldLog log;
  (void)openai::ParseChatRequest(R"({"messages":[{"role":"user","content":"x"}],"seed":1})", {},
                                 &log);
  ExpectFields("ChatRequest", log);
}

TEST(OpenApi, DescribesEveryFieldOfTextsAndVectors) {
  protocol::FieldLog embedding, rerank;
  (void)protocol::ParseEmbeddingRequest(R"({"input":"x"})", Pooling::kMean, false, &embedding);
  ExpectFields("EmbeddingRequest", embedding);
  (void)protocol::ParseRerankRequest(R"({"query":"x","texts":["x"]})", Pooling::kMean, false,
                                     &rerank);
  ExpectFields("RerankRequest", rerank);
}

TEST(OpenApi, DescribesEveryFieldOfAResponse) {
  protocol::FieldLog log;
  (void)openai::ParseResponsesRequest(R"({"input":"x","seed":1,"reasoning":{},"include":[]})", {},
                                      &log);
  ExpectFields("ResponsesRequest", log);
}

TEST(OpenApi, DescribesEveryFieldOfACompletion) {
  protocol::FieldLog log;
  (void)openai::ParseCompletionRequest(R"({"prompt":"x","seed":1,"best_of":1})", {}, &log);
  ExpectFields("CompletionRequest", log);
}

}  // namespace
}  // namespace thermocline
