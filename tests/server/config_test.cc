#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/base/file.h"
#include "server/server_config.h"

namespace thermocline::server {
namespace {

class ConfigTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  Result<ServerConfig> Load(const std::string& yaml,
                            const std::vector<std::string>& overrides = {}) {
    std::ofstream(path_) << yaml;
    return LoadServerConfig(path_, overrides);
  }
  const std::string path_ =
      testing::TempDir() + "thermocline_config_" + std::to_string(::getpid()) + ".yaml";
};

TEST_F(ConfigTest, ReadsKeysAndOverrides) {
  const auto config = Load("server:\n  port: 9000\nsampling:\n  temperature: 0.5\n",
                           {"server.port=9001", "model.path=x=y"});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->port, 9001);
  EXPECT_EQ(config->sampling.temperature, 0.5);
  EXPECT_EQ(config->model_path, "x=y");
}

TEST_F(ConfigTest, BytesMayHaveAUnit) {
  EXPECT_EQ(Load("memory:\n  budget_bytes: 8GiB\n")->memory_budget_bytes, std::int64_t{8} << 30);
  EXPECT_EQ(Load("memory:\n  budget_bytes: 4096\n")->memory_budget_bytes, 4096);
}

TEST_F(ConfigTest, MistakesAreNamedWithFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"server:\n  prot: 1\n", ":2: unknown key 'server.prot'; did you mean 'server.port'?"},
      {"server:\n  port: abc\n", ":2: server.port: 'abc' is no whole number"},
      {"server:\n  port: 99999\n", ":2: server.port: 99999 is outside [0, 65535]"},
      {"server:\n  port: [1]\n", ":2: server.port: expected a single value, found a list"},
      {"server:\n  port: ~\n", "server.port"},
      {"engine:\n  cpu_isa: sse\n", "'sse' is none of"},
      {"servr:\n  port: 1\n", "did you mean 'server.port'?"},
      {"server: 5\n", ":1: 'server' must be a section"},
      {"- 1\n", ":1: expected sections"},
      {"server:\n\tport: 1\n", ":2"},
      {"a: [\n", ":"},
      {"metrics:\n  prefix: 1x\n", "metrics.prefix"},
      {"engine:\n  ffn_mode: sgin\n", "engine.ffn_mode: feed-forward mode 'sgin' is unknown"},
      {"engine:\n  ffn_mode: '3-1:dense'\n", "engine.ffn_mode: '3-1' names no layers"},
      {"engine:\n  ffn_also: sign;exact\n", "engine.ffn_also"},
      {"engine:\n  ffn_recall: 1.5\n", "engine.ffn_recall: 1.5 is outside [0, 1]"},
      {"engine:\n  sign_slices: 6\n", "engine.sign_slices: 6 is outside [1, 5]"},
      {"memory:\n  budget_bytes: lots\n", ":2: memory.budget_bytes: 'lots' is no number of bytes"},
      {"memory:\n  budget_bytes: -5\n", "memory.budget_bytes"},
      {"memory:\n  read_ahead: 1\n", "memory.read_ahead"},
      {"server:\n  request_timeout_s: -1\n", "server.request_timeout_s"},
      {"spec:\n  mode: on\n", ":2: spec.mode: 'on' is none of 'off', 'sync', 'branch'"},
      {"spec:\n  source: magic\n", "spec.source: 'magic' is none of"},
      {"spec:\n  tokens_max: 16\n", "spec.tokens_max: 16 is outside [0, 15]"},
      {"spec:\n  width: 0\n", "spec.width: 0 is outside [1, 4]"},
      {"spec:\n  required: maybe\n", "spec.required"},
      {"spec:\n  acceptance: any\n", "'any' is none of 'same-text', 'rejection'"},
      {"spec:\n  draught: x.gguf\n", "did you mean 'spec.draft'?"},
      {"engine:\n  audit_interval: 0\n  controller_recall: 0.9\n", "engine.controller_recall"},
  };
  for (const auto& [yaml, words] : cases) {
    const auto config = Load(yaml);
    ASSERT_FALSE(config.ok()) << yaml;
    EXPECT_EQ(config.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(config.status().message().find(words), std::string::npos)
        << config.status().message();
  }
  EXPECT_FALSE(Load("", {"server.port"}).ok());
  EXPECT_FALSE(Load("", {"nope=1"}).ok());
  EXPECT_EQ(LoadServerConfig("/nowhere.yaml", {}).status().code(), StatusCode::kNotFound);
}

TEST_F(ConfigTest, ReadsTheModesOfTheFeedForwardNetwork) {
  const auto config = Load(
      "model:\n  side_car: a.tcp\nengine:\n  ffn_mode: 0-3:dense,4-:sign\n  ffn_also: "
      "exact,lowrank\n  sign_alpha: 1.02\n");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->ffn.modes, "0-3:dense,4-:sign");
  EXPECT_EQ(config->ffn.also, "exact,lowrank");
  EXPECT_EQ(config->ffn.side_car, "a.tcp");
  EXPECT_EQ(config->ffn.sign_alpha, 1.02);
  EXPECT_EQ(config->ffn.audit_interval, 64);
  EXPECT_FALSE(config->admin);
}

TEST_F(ConfigTest, ReadsWhatDraftsAreLike) {
  const auto config = Load(
      "spec:\n  mode: branch\n  source: model\n  draft: small.gguf\n  required: false\n"
      "  tokens_max: 12\n  fixed: true\n  width: 3\n  threads: 2\n  acceptance: rejection\n"
      "  head: 4096\n");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const SpecOptions& spec = config->spec;
  EXPECT_EQ(spec.mode, "branch");
  EXPECT_EQ(spec.source, "model");
  EXPECT_EQ(spec.draft, "small.gguf");
  EXPECT_TRUE(!spec.required && spec.fixed);
  EXPECT_EQ(spec.tokens_max, 12);
  EXPECT_EQ(spec.width, 3);
  EXPECT_EQ(spec.threads, 2);
  EXPECT_EQ(spec.acceptance, "rejection");
  EXPECT_EQ(spec.head, 4096);
  EXPECT_EQ(Load("")->spec.mode, "auto");
}

TEST_F(ConfigTest, AdminRoutesStayOnTheLoopbackInterface) {
  EXPECT_TRUE(Load("server:\n  admin: true\n  host: 127.0.0.1\n").ok());
  EXPECT_FALSE(Load("server:\n  admin: true\n  host: 0.0.0.0\n").ok());
  EXPECT_TRUE(Load("server:\n  host: 0.0.0.0\n").ok());
}

TEST_F(ConfigTest, TheShippedFileDocumentsEveryKeyWithItsDefault) {
  const std::string shipped = SOURCE_DIR "/config/thermocline.yaml";
  const auto config = LoadServerConfig(shipped, {});
  ASSERT_TRUE(config.ok()) << config.status().message();
  const ServerConfig defaults;
  EXPECT_EQ(config->port, defaults.port);
  EXPECT_EQ(config->sampling.temperature, defaults.sampling.temperature);
  EXPECT_EQ(config->drain_timeout_s, defaults.drain_timeout_s);
  EXPECT_EQ(config->ffn.modes, defaults.ffn.modes);
  EXPECT_EQ(config->ffn.audit_interval, defaults.ffn.audit_interval);
  EXPECT_EQ(config->ffn.sign_alpha_layers, defaults.ffn.sign_alpha_layers);
  EXPECT_EQ(config->spec.mode, defaults.spec.mode);
  EXPECT_EQ(config->spec.tokens_max, defaults.spec.tokens_max);
  EXPECT_EQ(config->spec.width, defaults.spec.width);
  EXPECT_EQ(config->spec.acceptance, defaults.spec.acceptance);
  const auto text = base::ReadFileToString(shipped);
  for (const std::string& key : ConfigKeys()) {
    EXPECT_NE(text->find("  " + key.substr(key.find('.') + 1) + ":"), std::string::npos)
        << key << " is not documented";
  }
}

}  // namespace
}  // namespace thermocline::server
