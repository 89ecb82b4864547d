#include "server/openai/chat_request.h"

#include <gtest/gtest.h>

#include "server/protocol/error.h"

namespace thermocline::openai {
namespace {

std::string Body(const std::string& extra) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (extra.empty() ? "" : "," + extra) +
         "}";
}
auto Parse(const std::string& body) { return ParseChatRequest(body, {}); }

TEST(ChatRequest, NullMeansAbsentForEveryOptionalField) {
  const auto parsed = Parse(Body(
      R"("model":null,"temperature":null,"top_p":null,"top_k":null,"min_p":null,"max_tokens":null,"max_completion_tokens":null,
    "stop":null,"seed":null,"stream":null,"stream_options":null,"n":null,"logprobs":null,"logit_bias":null,"presence_penalty":null,
    "frequency_penalty":null,"tools":null,"response_format":null,"user":null,"unknown_field":null)"));
  EXPECT_TRUE(parsed.ok());
}

TEST(ChatRequest, ReadsTools) {
  const auto parsed = Parse(Body(
      R"("tools":[{"type":"function","function":{"name":"a","description":"A","parameters":{"type":"object"},"strict":true}},
    {"type":"function","function":{"name":"b"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required",
    "tools":[{"type":"function","function":{"name":"b"}}]}},"parallel_tool_calls":false)"));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const auto& tools = std::get<server::Conversation>(parsed->generation.prompts[0]).tools;
  ASSERT_EQ(tools.tools.size(), 1U);
  EXPECT_EQ(tools.tools[0].name, "b");
  EXPECT_EQ(tools.choice.mode, chat::ToolChoice::Mode::kRequired);
  EXPECT_FALSE(tools.choice.parallel);
}

TEST(ChatRequest, IgnoresWhatChangesNothing) {
  EXPECT_TRUE(Parse(Body(R"("user":"x","metadata":{"a":"b"},"store":true)")).ok());
}

TEST(ChatRequest, AnAnswerThatIsBegunIsContinued) {
  const auto continues = [](const std::string& extra) {
    const auto parsed = ParseChatRequest(
        R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"Well,"}])" +
            extra + "}",
        {});
    return std::get<server::Conversation>(parsed->generation.prompts[0]).continues_last;
  };
  EXPECT_TRUE(continues(""));
  EXPECT_TRUE(continues(R"(,"continue_final_message":true)"));
  EXPECT_FALSE(continues(R"(,"continue_final_message":false)"));
}

TEST(ChatRequest, ReadsEveryField) {
  const auto parsed = Parse(Body(
      R"("temperature":0.5,"top_k":40.0,"top_p":0.9,"min_p":0.1,"max_completion_tokens":7,"stop":"x","seed":-3,"stream":true,
    "stream_options":{"include_usage":true},"logit_bias":{"5":-100},"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,"n":1)"));
  const auto& r = parsed->generation;
  EXPECT_EQ(r.request.sampling.temperature, 0.5);
  EXPECT_EQ(r.request.sampling.top_k, 40);
  EXPECT_EQ(r.request.max_tokens, 7);
  EXPECT_EQ(r.request.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(r.request.sampling.seed, static_cast<std::uint64_t>(-3));
  EXPECT_TRUE(parsed->stream && parsed->include_usage);
  EXPECT_EQ(r.request.sampling.logit_bias.at(0).first, 5);
}

TEST(ChatRequest, ReadsTheModesOfTheFeedForwardNetwork) {
  const auto mode = [](const std::string& extra) {
    return Parse(Body(extra))->generation.request.ffn_mode;
  };
  EXPECT_EQ(mode(R"("x_thermocline":{"ffn_mode":"0-3:dense,4-:sign"})"), "0-3:dense,4-:sign");
  EXPECT_EQ(mode(R"("x_thermocline":{"ffn_mode":null})"), "");
  EXPECT_EQ(mode(R"("x_thermocline":{})"), "");
  EXPECT_EQ(mode(R"("x_thermocline":null)"), "");
}

TEST(ChatRequest, ReadsWhatIsAskedOfDrafts) {
  const auto request = [](const std::string& extra) {
    return Parse(Body(extra))->generation.request;
  };
  for (const std::string_view name : kSpecModeNames) {
    const auto asked = request(StrCat(R"("x_thermocline":{"speculation":")", name, "\"}"));
    EXPECT_EQ(SpecModeName(*asked.spec_mode), name);
    EXPECT_EQ(asked.spec_tokens, -1);
  }
  EXPECT_EQ(request(R"("x_thermocline":{"draft_tokens":0})").spec_tokens, 0);
  EXPECT_EQ(request(R"("x_thermocline":{"draft_tokens":20})").spec_tokens, 20);
  EXPECT_EQ(request(R"("x_thermocline":{"speculation":null,"draft_tokens":null})").spec_mode,
            std::nullopt);
  EXPECT_EQ(request("").spec_tokens, -1);
}

TEST(ChatRequest, ContentMayBeStringPartsOrNullForTheAssistant) {
  const auto parsed = Parse(
      R"({"messages":[{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}}]},
    {"role":"tool","content":"r","tool_call_id":null}]})");
  const auto& conversation = std::get<server::Conversation>(parsed->generation.prompts.at(0));
  const auto& messages = conversation.json.Find("messages")->as_array();
  EXPECT_EQ(messages[0].Find("role")->as_string(), "system");
  EXPECT_EQ(messages[0].Find("content")->as_string(), "ab");
  EXPECT_EQ(messages[2]
                .Find("tool_calls")
                ->as_array()[0]
                .Find("function")
                ->Find("arguments")
                ->Find("x")
                ->as_int(),
            1);
}

TEST(ChatRequest, BadInputIsA400ThatNamesTheField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", ""},
      {"[]", ""},
      {"{", ""},
      {"null", ""},
      {"{}", "messages"},
      {R"({"messages":[]})", "messages"},
      {R"({"messages":"hi"})", "messages"},
      {R"({"messages":[1]})", "messages"},
      {R"({"messages":[{"role":"robot","content":"x"}]})", "messages"},
      {R"({"messages":[{"role":"user"}]})", "messages"},
      {R"({"messages":[{"role":"user","content":5}]})", "messages"},
      {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", "messages"},
      {Body(R"("temperature":"hot")"), "temperature"},
      {Body(R"("temperature":-1)"), "temperature"},
      {Body(R"("temperature":101)"), "temperature"},
      {Body(R"("max_tokens":0)"), "max_tokens"},
      {Body(R"("max_tokens":-5)"), "max_tokens"},
      {Body(R"("max_tokens":1e30)"), "max_tokens"},
      {Body(R"("max_tokens":99999999999999999999)"), "max_tokens"},
      {Body(R"("max_tokens":1.5)"), "max_tokens"},
      {Body(R"("max_tokens":1,"max_completion_tokens":2)"), "max_tokens"},
      {Body(R"("top_p":1.1)"), "top_p"},
      {Body(R"("top_k":-2)"), "top_k"},
      {Body(R"("stop":5)"), "stop"},
      {Body(
           R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])"),
       "stop"},
      {Body(R"("stream":1)"), "stream"},
      {Body(R"("stream_options":[])"), "stream_options"},
      {Body(R"("stream_options":{"include_usage":"yes"})"), "stream_options.include_usage"},
      {Body(R"("logit_bias":[1])"), "logit_bias"},
      {Body(R"("logit_bias":{"x":1})"), "logit_bias"},
      {Body(R"("logit_bias":{"1":1000})"), "logit_bias"},
      {Body(R"("n":9)"), "n"},
      {Body(R"("n":0)"), "n"},
      {Body(R"("n":1.5)"), "n"},
      {Body(R"("logprobs":1)"), "logprobs"},
      {Body(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs"},
      {Body(R"("logprobs":true,"top_logprobs":-1)"), "top_logprobs"},
      {Body(R"("typical_p":1.01)"), "typical_p"},
      {Body(R"("min_tokens":-1)"), "min_tokens"},
      {Body(R"("min_tokens":9,"max_tokens":8)"), "min_tokens"},
      {Body(R"("dry_base":0.5)"), "dry_base"},
      {Body(R"("dry_multiplier":-1)"), "dry_multiplier"},
      {Body(R"("dry_allowed_length":0)"), "dry_allowed_length"},
      {Body(R"("dry_penalty_last_n":-2)"), "dry_penalty_last_n"},
      {Body(R"("dry_sequence_breakers":[1])"), "dry_sequence_breakers"},
      {Body(R"("stop_token_ids":[-1])"), "stop_token_ids"},
      {Body(R"("stop_token_ids":3)"), "stop_token_ids"},
      {Body(R"("ignore_eos":"yes")"), "ignore_eos"},
      {Body(R"("priority":11)"), "priority"},
      {Body(R"("return_progress":1)"), "return_progress"},
      {Body(R"("tools":[{}])"), "tools"},
      {Body(R"("functions":[{"name":"f"}])"), "functions"},
      {Body(R"("temprature":1)"), "temprature"},
      {Body(R"("tools":[{"type":"web_search"}])"), "tools"},
      {Body(R"("tools":[{"type":"function","function":{"name":"a b"}}])"), "tools"},
      {Body(R"("tools":[{"type":"function","function":{"name":"a","parameters":[]}}])"), "tools"},
      {Body(
           R"("tools":[{"type":"function","function":{"name":"a"}},{"type":"function","function":{"name":"a"}}])"),
       "tools"},
      {Body(
           R"("tools":[{"type":"function","function":{"name":"a"}}],"tool_choice":{"type":"function","function":{"name":"b"}})"),
       "tool_choice"},
      {Body(R"("tools":[{"type":"function","function":{"name":"a"}}],"tool_choice":"maybe")"),
       "tool_choice"},
      {Body(R"("chat_template_kwargs":{"messages":[]})"), "chat_template_kwargs"},
      {Body(R"("reasoning_effort":"huge")"), "reasoning_effort"},
      {Body(R"("continue_final_message":true)"), "continue_final_message"},
      {Body(R"("tool_choice":"required")"), "tool_choice"},
      {Body(R"("top_logprobs":2)"), "top_logprobs"},
      {Body(R"("response_format":{"type":"xml"})"), "response_format"},
      {Body(R"("response_format":{"type":"json_schema"})"), "response_format"},
      {Body(R"("grammar":"")"), "grammar"},
      {Body(R"("json_schema":3)"), "json_schema"},
      {Body(R"("guided_choice":[])"), "guided_choice"},
      {Body(R"("guided_choice":["a",""])"), "guided_choice"},
      {Body(R"("structured_outputs":{"structural_tag":"a"})"), "structured_outputs.structural_tag"},
      {Body(R"("structured_outputs":{"regex":"a","choice":["a"]})"), "structured_outputs.choice"},
      {Body(R"("guided_regex":"a","response_format":{"type":"json_object"})"), "guided_regex"},
      {Body(R"("seed":"x")"), "seed"},
      {Body(R"("seed":18446744073709551616)"), "seed"},
      {Body(R"("seed":-9223372036854775809)"), "seed"},
      {Body(R"("model":5)"), "model"},
      {Body(R"("x_thermocline":"sign")"), "x_thermocline"},
      {Body(R"("x_thermocline":{"timeout_s":-1})"), "x_thermocline.timeout_s"},
      {Body(R"("x_thermocline":{"timeout_s":"1"})"), "x_thermocline.timeout_s"},
      {Body(R"("x_thermocline":{"ffn_mode":1})"), "x_thermocline.ffn_mode"},
      {Body(R"("x_thermocline":{"ffn_mode":["sign"]})"), "x_thermocline.ffn_mode"},
      {Body(R"("x_thermocline":{"ffn_mode":")" + std::string(2000, 'x') + "\"}"),
       "x_thermocline.ffn_mode"},
      {Body(R"("x_thermocline":{"ffn_mode":"sign","ffn_mod":"sign"})"), "x_thermocline.ffn_mod"},
      {Body(R"("x_thermocline":{"speculation":"on"})"), "x_thermocline.speculation"},
      {Body(R"("x_thermocline":{"speculation":true})"), "x_thermocline.speculation"},
      {Body(R"("x_thermocline":{"speculation":")" + std::string(5000, 'x') + "\"}"),
       "x_thermocline.speculation"},
      {Body(R"("x_thermocline":{"draft_tokens":-1})"), "x_thermocline.draft_tokens"},
      {Body(R"("x_thermocline":{"draft_tokens":21})"), "x_thermocline.draft_tokens"},
      {Body(R"("x_thermocline":{"draft_tokens":1.5})"), "x_thermocline.draft_tokens"},
      {Body(R"("x_thermocline":{"drafttokens":1})"), "x_thermocline.drafttokens"},
      {Body("\"user\":\"\xFF\""), ""}};
  for (const auto& [body, param] : cases) {
    const auto parsed = Parse(body);
    ASSERT_FALSE(parsed.ok()) << body;
    const protocol::ApiError error = protocol::FromStatus(parsed.status());
    EXPECT_EQ(error.http_status, 400) << body;
    EXPECT_EQ(error.param, param) << body;
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_FALSE(error.message.empty());
  }
}

TEST(ChatRequest, ReadsWhatControlsTheGeneration) {
  const auto parsed = Parse(Body(
      R"("n":3,"logprobs":true,"top_logprobs":20,"min_tokens":2.0,"max_tokens":9,"typical_p":0.9,"dry_multiplier":0.8,"dry_base":2,
    "dry_allowed_length":3,"dry_penalty_last_n":64,"dry_sequence_breakers":["\n","*"],"stop_token_ids":[5,6.0],"ignore_eos":true,
    "priority":-3,"return_progress":true,"stream":true)"));
  const auto& r = parsed->generation;
  EXPECT_EQ(r.choices, 3);
  EXPECT_EQ(r.request.logprobs, 20);
  EXPECT_EQ(r.request.sampling.min_tokens, 2);
  EXPECT_EQ(r.request.sampling.typical_p, 0.9);
  EXPECT_EQ(r.request.sampling.dry_multiplier, 0.8);
  EXPECT_EQ(r.request.sampling.dry_base, 2);
  EXPECT_EQ(r.request.sampling.dry_allowed_length, 3);
  EXPECT_EQ(r.request.sampling.dry_penalty_last_n, 64);
  EXPECT_EQ(r.request.dry_breakers, (std::vector<std::string>{"\n", "*"}));
  EXPECT_EQ(r.request.stop_tokens, (std::vector<int>{5, 6}));
  EXPECT_TRUE(r.request.ignore_eos);
  EXPECT_EQ(r.request.priority, -3);
  EXPECT_TRUE(r.request.progress);
  EXPECT_EQ(Parse(Body(R"("logprobs":true)"))->generation.request.logprobs, 0);
  EXPECT_EQ(Parse(Body(R"("logprobs":false)"))->generation.request.logprobs, -1);
  EXPECT_FALSE(Parse(Body(""))->generation.request.dry_breakers.has_value());
}

TEST(ChatRequest, ReadsWhatTheAnswerMustBe) {
  using Kind = GrammarSpec::Kind;
  const auto spec = [](const char* fields) {
    const auto parsed = Parse(Body(fields));
    EXPECT_TRUE(parsed.ok()) << fields;
    return parsed.ok() ? parsed->generation.grammar : std::nullopt;
  };
  EXPECT_FALSE(spec(R"("response_format":{"type":"text"},"grammar":null)").has_value());
  EXPECT_EQ(spec(R"("response_format":{"type":"json_object"})")->kind, Kind::kJsonObject);
  const auto schema =
      spec(R"("response_format":{"type":"json_schema","json_schema":{"schema":{"b":1,"a":2}}})");
  EXPECT_EQ(schema->kind, Kind::kJsonSchema);
  EXPECT_EQ(schema->text, R"({"b":1,"a":2})");  // keeps its order
  EXPECT_EQ(schema->field, "response_format.json_schema.schema");
  EXPECT_EQ(spec(R"("guided_json":"{}")")->text, "{}");
  EXPECT_EQ(spec(R"("structured_outputs":{"regex":"a+","json":null})")->kind, Kind::kRegex);
  EXPECT_EQ(spec(R"("guided_choice":["a","b"])")->choices, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(spec(R"("grammar":"root ::= \"a\"")")->kind, Kind::kGbnf);
}

TEST(ChatRequest, LoneSurrogatesAreRefusedPairsAreNot) {
  EXPECT_FALSE(Parse(Body(R"("user":"\ud83d")")).ok());
  EXPECT_FALSE(Parse(Body(R"("user":"\ude00\ud83d")")).ok());
  EXPECT_TRUE(Parse(Body(R"("user":"\ud83d\ude00")")).ok());
}

TEST(ApiError, WhatWasNotLoadedIsTheClientsToChange) {
  const protocol::ApiError error =
      protocol::FromStatus(base::FailedPrecondition("start with this mode"));
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.message, "start with this mode");
}

TEST(ApiError, InternalFaultsKeepTheirWords) {
  const protocol::ApiError error = protocol::FromStatus(base::Internal("secret path /x"));
  EXPECT_EQ(error.http_status, 500);
  EXPECT_EQ(error.ToJson().Dump().find("secret"), std::string::npos);
}

}  // namespace
}  // namespace thermocline::openai
