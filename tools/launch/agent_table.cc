#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/json.h"
#include "tools/launch/agent.h"

namespace thermocline::tools {
namespace {

// An hour: the daemon's server.request_timeout_s. On a CPU a first prompt takes minutes.
constexpr const char* kRequestMs = "3600000";
// Codex asks this variable for the key.
constexpr const char* kKeyVariable = "THERMOCLINE_API_KEY";

std::string KeyOf(const Endpoint& endpoint) { return endpoint.keyed ? kApiKeyMark : "none"; }

// Claude Code asks for models by several names, so each of them becomes the model that is served.
// Empty variables undo those that would lead it to another server. The line for billing and the
// reminders of tokens change with each request; off, they leave the prefix cache valid.
AgentSetup SetUpClaude(const Endpoint& endpoint) {
  AgentSetup setup;
  setup.variables = {{"ANTHROPIC_BASE_URL", endpoint.url},
                     {"ANTHROPIC_AUTH_TOKEN", KeyOf(endpoint)},
                     {"ANTHROPIC_API_KEY", ""},
                     {"CLAUDE_CODE_USE_BEDROCK", ""},
                     {"CLAUDE_CODE_USE_VERTEX", ""}};
  for (const char* name :
       {"ANTHROPIC_MODEL", "ANTHROPIC_DEFAULT_OPUS_MODEL", "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL"})
    setup.variables.push_back({name, endpoint.model});
  for (const Variable& fixed :
       std::initializer_list<Variable>{{"CLAUDE_CODE_ATTRIBUTION_HEADER", "0"},
                                       {"CLAUDE_CODE_TOTAL_TOKENS_REMINDER", "off"},
                                       {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"},
                                       {"API_TIMEOUT_MS", kRequestMs}})
    setup.variables.push_back(fixed);
  if (endpoint.context > 0)
    setup.variables.push_back({"CLAUDE_CODE_MAX_CONTEXT_TOKENS", StrCat(endpoint.context)});
  return setup;
}

// Codex reads each -c as a line of its config.toml, which stays as it is.
AgentSetup SetUpCodex(const Endpoint& endpoint) {
  AgentSetup setup;
  const auto set = [&](const std::string& key, const std::string& toml) {
    setup.arguments.insert(setup.arguments.end(), {"-c", key + "=" + toml});
  };
  const auto quoted = [](const std::string& text) { return Json(text).Dump(); };
  const std::string provider = "model_providers.thermocline.";
  set("model", quoted(endpoint.model));
  set("model_provider", quoted("thermocline"));
  set(provider + "name", quoted("Thermocline"));
  set(provider + "base_url", quoted(endpoint.url + "/v1"));
  set(provider + "wire_api", quoted("responses"));
  set(provider + "stream_idle_timeout_ms", kRequestMs);
  if (endpoint.context > 0) set("model_context_window", StrCat(endpoint.context));
  if (!endpoint.keyed) return setup;
  set(provider + "env_key", quoted(kKeyVariable));
  setup.variables = {{kKeyVariable, kApiKeyMark}};
  return setup;
}

// OpenCode adds this configuration to that of its files.
AgentSetup SetUpOpenCode(const Endpoint& endpoint) {
  constexpr std::int64_t kAnswerShare = 4;  // of the context, for an answer
  Json::Object model{{"name", endpoint.model}};
  if (endpoint.context > 0) {
    model.emplace_back("limit", Json::Object{{"context", endpoint.context},
                                             {"output", endpoint.context / kAnswerShare}});
  }
  Json::Object provider{{"npm", "@ai-sdk/openai-compatible"},
                        {"name", "Thermocline"},
                        {"options", Json::Object{{"baseURL", endpoint.url + "/v1"},
                                                 {"apiKey", StrCat("{env:", kKeyVariable, "}")}}},
                        {"models", Json::Object{{endpoint.model, std::move(model)}}}};
  const std::string name = "thermocline/" + endpoint.model;
  const Json config = Json::Object{{"$schema", "https://opencode.ai/config.json"},
                                   {"provider", Json::Object{{"thermocline", std::move(provider)}}},
                                   {"model", name},
                                   {"small_model", name}};
  return {
      .variables = {{"OPENCODE_CONFIG_CONTENT", config.Dump()}, {kKeyVariable, KeyOf(endpoint)}},
      .arguments = {}};
}

AgentSetup SetUpAider(const Endpoint& endpoint) {
  return {.variables = {{"AIDER_OPENAI_API_BASE", endpoint.url + "/v1"},
                        {"AIDER_OPENAI_API_KEY", KeyOf(endpoint)},
                        {"AIDER_MODEL", "openai/" + endpoint.model},
                        {"AIDER_WEAK_MODEL", "openai/" + endpoint.model},
                        {"AIDER_SHOW_MODEL_WARNINGS", "false"}},
          .arguments = {}};
}

AgentSetup SetUpGptme(const Endpoint& endpoint) {
  return {
      .variables = {{"OPENAI_BASE_URL", endpoint.url + "/v1"}, {"OPENAI_API_KEY", KeyOf(endpoint)}},
      .arguments = {"-m", "local/" + endpoint.model}};
}

constexpr Agent kAgents[] = {
    {.name = "claude",
     .title = "Claude Code",
     .program = "claude",
     .install = "npm install -g @anthropic-ai/claude-code",
     .first_prompt = "12,000 to 30,000",
     .context_min = 32768,
     .set_up = SetUpClaude},
    {.name = "codex",
     .title = "Codex",
     .program = "codex",
     .install = "npm install -g @openai/codex",
     .first_prompt = "7,000",
     .context_min = 16384,
     .set_up = SetUpCodex},
    {.name = "opencode",
     .title = "OpenCode",
     .program = "opencode",
     .install = "npm install -g opencode-ai",
     .first_prompt = "",
     .context_min = 16384,
     .set_up = SetUpOpenCode},
    {.name = "aider",
     .title = "aider",
     .program = "aider",
     .install = "python3 -m pip install aider-chat",
     .first_prompt = "700",
     .context_min = 8192,
     .set_up = SetUpAider},
    {.name = "gptme",
     .title = "gptme",
     .program = "gptme",
     .install = "python3 -m pip install gptme",
     .first_prompt = "9,500",
     .context_min = 16384,
     .set_up = SetUpGptme},
};

}  // namespace

std::span<const Agent> Agents() { return kAgents; }

const Agent& FindAgent(const std::string& name) {
  const auto found = std::find_if(std::begin(kAgents), std::end(kAgents),
                                  [&](const Agent& agent) { return agent.name == name; });
  CHECK(found != std::end(kAgents));
  return *found;
}

}  // namespace thermocline::tools
