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

TEST_F(ConfigTest, TheShippedFileDocumentsEveryKeyWithItsDefault) {
  const std::string shipped = SOURCE_DIR "/config/thermocline.yaml";
  const auto config = LoadServerConfig(shipped, {});
  ASSERT_TRUE(config.ok()) << config.status().message();
  const ServerConfig defaults;
  EXPECT_EQ(config->port, defaults.port);
  EXPECT_EQ(config->sampling.temperature, defaults.sampling.temperature);
  EXPECT_EQ(config->drain_timeout_s, defaults.drain_timeout_s);
  const auto text = base::ReadFileToString(shipped);
  for (const std::string& key : ConfigKeys()) {
    EXPECT_NE(text->find("  " + key.substr(key.find('.') + 1) + ":"), std::string::npos)
        << key << " is not documented";
  }
}

}  // namespace
}  // namespace thermocline::server
