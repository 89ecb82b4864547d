// An example of each lenient form, and a similar text that is no call.
#pragma once

#include <string>
#include <vector>

namespace thermocline::chat {

// All calls are get_weather with {"city": "Rome"}.
struct CallExample {
  std::string row;   // of CallForms()
  std::string call;  // an answer that is a call
  std::string text;  // an answer that is not
};

inline const std::vector<CallExample>& CallExamples() {
  static const std::string kObject = R"({"name": "get_weather", "arguments": {"city": "Rome"}})";
  static const std::vector<CallExample> kExamples = {
      {"object", kObject, R"({"name": "Bingo", "age": 30})"},
      {"object", R"({"type": "function", "name": "get_weather", "parameters": {"city": "Rome"}})",
       R"({"name": "get_weather", "version": "1.0.0", "arguments": {"city": "Rome"}})"},
      {"object", R"({"function": {"name": "get_weather", "arguments": {"city": "Rome"}}})",
       R"({"name": "get_weather", "parameters": {"type": "object", "properties": {}}})"},
      {"object", R"({"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"})",
       R"({"name": "get_weather", "arguments": "Rome"})"},
      {"object", R"({"get_weather": {"city": "Rome"}})", R"({"get_weather": {"town": "Rome"}})"},
      {"fence", "```json\n" + kObject + "\n```",
       "```json\n" + kObject + "\n```\nThis is how a call looks."},
      {"fence", "```tool_code\nget_weather(city=\"Rome\")\n```",
       "```python\nget_weather(city=\"Rome\")\n```"},
      {"fence", "```tool_code\nprint(get_weather(city=\"Rome\"))\n```",
       "```tool_code\nprint(get_weather(city=home))\n```"},
      {"tilde fence", "", "~~~\n" + kObject + "\n~~~"},
      {"list", "[" + kObject + "]", R"([{"name": "Bingo"}, {"name": "Fido"}])"},
      {"list", R"([get_weather(city="Rome")])", "[get_weather(city=\"Rome\")](https://a.example)"},
      {"Qwen's tags", "<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>",
       "<functional> is a header."},
      {"function tags",
       R"(<function name="get_weather"><parameter name="city">Rome</parameter></function>)",
       R"(<function name="main"><parameter name="city">Rome</parameter></function>)"},
      {"invoke tags",
       R"(<invoke name="get_weather"><parameter name="city">Rome</parameter></invoke>)",
       R"(<invoke name="get_weather">the tool</invoke>)"},
      {"tool_call tag", "<tool_call>" + kObject + "</tool_call>",
       "<tool_call> begins a call in some formats."},
      {"Gemma's mark", R"(<|tool_call>call:get_weather{"city": "Rome"}<tool_call|>)",
       "<|tool_call> is a token of Gemma."},
      {"tools tag", "<tools>" + kObject + "</tools>",
       "<tools>\n{\"name\": \"get_weather\", \"description\": \"Weather\"}\n</tools>"},
      {"tool_calls tag", "<tool_calls>[" + kObject + "]</tool_calls>", "<tool_calls> is a tag."},
      {"function_calls tag",
       "<function_calls>\n<invoke name=\"get_weather\">\n<parameter "
       "name=\"city\">Rome</parameter>\n</invoke>\n</function_calls>",
       "<function_calls> is a tag."},
      {"Llama 3's mark", "<|python_tag|>" + kObject, "<|python_tag|>import math"},
      {"Llama 3's mark", "<|python_tag|>get_weather.call(city=\"Rome\")",
       "<|python_tag|>get_weather.call(city=capital(\"Italy\"))"},
      {"Llama 4's mark", "<|python_start|>" + kObject + "<|python_end|>",
       "<|python_start|>print(1)<|python_end|>"},
      {"Mistral's mark", R"([TOOL_CALLS]get_weather{"city": "Rome"})",
       "[TOOL_CALLS] is a token of Mistral."},
      {"Mistral's mark", "[TOOL_CALLS][" + kObject + "]", "[TOOL_CALLS][1, 2]"},
      {"Mistral's arguments", R"(get_weather[ARGS]{"city": "Rome"})",
       "get_weather[ARGS] is how it begins."},
      {"Phi's list", "functools[" + kObject + "]", "functools[reduce]"},
      {"rendered call", R"([Calling tool: get_weather({"city": "Rome"})])",
       "[Calling tool: get_weather]"},
      {"assigned call", "tool_code = get_weather(city='Rome')", "tool_code = weather"},
      {"call: prefix", R"(call:get_weather(city="Rome"))", "call: me later"}};
  return kExamples;
}

}  // namespace thermocline::chat
