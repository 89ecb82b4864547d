#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "engine/base/file.h"
#include "server/core/reloadable_config.h"
#include "server/daemon/config_file.h"
#include "server/daemon/config_keys.h"

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
  EXPECT_EQ(config->model.path, "x=y");
}

TEST_F(ConfigTest, ListsAreLists) {
  const auto file = Load(
      "model:\n  aliases: ['*', b]\nserver:\n  allowed_origins:\n    - http://a\n"
      "metrics:\n  buckets_tokens: [1, 2, 3]\n");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->model_aliases, "*,b");
  EXPECT_EQ(file->allowed_origins, "http://a");
  EXPECT_EQ(file->metrics_buckets.tokens, (std::vector<double>{1, 2, 3}));
  for (const char* text : {"[\"*\"]", "['*']", "*", "\"*\"", "'*'"}) {
    const auto config = Load("", {std::string("model.aliases=") + text});
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->model_aliases, "*") << text;
  }
  const auto broken = Load("", {"model.aliases=[a"});
  EXPECT_NE(broken.status().message().find("is no list"), std::string::npos);
  EXPECT_EQ(Load("", {"model.path=[x].gguf"})->model.path, "[x].gguf");
}

// --set 'model.aliases="*"' once made an alias that included the quotes.
TEST_F(ConfigTest, OverridesInQuotesAreYaml) {
  const auto aliases = [&](const std::string& text) {
    const auto config = Load("", {"model.aliases=" + text});
    return config.ok() ? config->model_aliases : config.status().message();
  };
  EXPECT_EQ(aliases(R"("a", "b")"), "a,b");
  EXPECT_EQ(aliases(R"("a, b")"), "a, b");
  EXPECT_EQ(aliases(R"(["a",'b'])"), "a,b");
  EXPECT_EQ(aliases("'it''s'"), "it's");
  EXPECT_EQ(aliases("\"\""), "");
  EXPECT_EQ(Load("", {R"(model.path="[x]")"})->model.path, "[x]");
  EXPECT_EQ(Load("", {R"(server.port="9000")"})->port, 9000);
  EXPECT_EQ(Load("", {"grpc.address=[::1]:50051"})->grpc_address, "[::1]:50051");
  const std::pair<const char*, const char*> wrong[] = {
      {R"(model.name=["a"])", "model.name: expected a single value, found a list"},
      {R"(model.path=["a"])", "model.path: expected a single value, found a list"},
      {"model.aliases={a: b}", "model.aliases: expected a single value, found a section"},
      {"model.name={a: b}", "model.name: expected a single value, found a section"},
      {R"(model.name="a","b")", "model.name: expected a single value, found a list"},
      {R"(model.name="a)", "is no single text in quotes"},
      {R"(model.aliases="a)", "is no list"},
      {R"(model.nmae="a")", "did you mean 'model.name'?"},
      {"model.nmae={a: b}", "did you mean 'model.name'?"}};
  for (const auto& [setting, words] : wrong)
    EXPECT_NE(Load("", {setting}).status().message().find(words), std::string::npos)
        << setting << ": " << Load("", {setting}).status().message();
}

TEST_F(ConfigTest, SamplingIsANumberOrTheModels) {
  const auto config = Load("sampling:\n  temperature: 0.5\n  top_p: model\n",
                           {"sampling.temperature=model", "sampling.top_k=40"});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FALSE(config->sampling.temperature.has_value());
  EXPECT_FALSE(config->sampling.top_p.has_value());
  EXPECT_EQ(config->sampling.top_k, 40);
  for (const char* wrong : {"sampling.temperature=hot", "sampling.temperature=101",
                            "sampling.top_k=1.5", "sampling.top_k=-1"}) {
    const auto refused = Load("", {wrong});
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << wrong;
  }
}

TEST_F(ConfigTest, BytesMayHaveAUnit) {
  EXPECT_EQ(Load("memory:\n  budget_bytes: 8GiB\n")->model.memory.budget_bytes,
            std::int64_t{8} << 30);
  EXPECT_EQ(Load("memory:\n  budget_bytes: 4096\n")->model.memory.budget_bytes, 4096);
}

TEST_F(ConfigTest, ThePrefixCacheHasASize) {
  EXPECT_EQ(Load("")->serving.prefix_cache_bytes, -1);
  EXPECT_EQ(Load("prefix_cache:\n  memory: -1\n")->serving.prefix_cache_bytes, -1);
  EXPECT_EQ(Load("prefix_cache:\n  memory: 2GiB\n")->serving.prefix_cache_bytes,
            std::int64_t{2} << 30);
  EXPECT_FALSE(Load("prefix_cache:\n  memory: -2\n").ok());
}

TEST_F(ConfigTest, TheOlderKeyOfThePrefixCacheCountsMebibytes) {
  EXPECT_EQ(Load("engine:\n  prefix_cache_mib: -1\n")->serving.prefix_cache_bytes, -1);
  EXPECT_EQ(Load("engine:\n  prefix_cache_mib: 4096\n")->serving.prefix_cache_bytes,
            std::int64_t{4} << 30);
  EXPECT_FALSE(Load("engine:\n  prefix_cache_mib: -2\n").ok());
}

TEST_F(ConfigTest, BordersAreListsOfAscendingNumbers) {
  EXPECT_EQ(Load("metrics:\n  buckets_inter_token: 0.001, 0.5,2\n")->metrics_buckets.inter_token,
            (std::vector<double>{0.001, 0.5, 2}));
  EXPECT_TRUE(Load("metrics:\n  buckets_tokens: \"\"\n")->metrics_buckets.tokens.empty());
  for (const char* bad : {"1,1", "2,1", "0,1", "-1", "1,x", "1,,2", "1,inf", "nan"}) {
    EXPECT_FALSE(Load("", {StrCat("metrics.buckets_request=", bad)}).ok()) << bad;
  }
}

TEST_F(ConfigTest, MistakesAreNamedWithFileAndLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"server:\n  prot: 1\n", ":2: unknown key 'server.prot'; did you mean 'server.port'?"},
      {"server:\n  port: abc\n", ":2: server.port: 'abc' is no whole number"},
      {"server:\n  port: 99999\n", ":2: server.port: 99999 is outside [0, 65535]"},
      {"server:\n  port: [1]\n", ":2: server.port: expected a single value, found a list"},
      {"model:\n  name: [a]\n", ":2: model.name: expected a single value, found a list"},
      {"model:\n  aliases: ['a,b']\n", ":2: model.aliases: 'a,b' has a comma"},
      {"model:\n  aliases: [[a]]\n", "expected a single value, found a list"},
      {"server:\n  port: ~\n", "server.port"},
      {"engine:\n  cpu_isa: sse\n", "'sse' is none of"},
      {"servr:\n  port: 1\n", "did you mean 'server.port'?"},
      {"server: 5\n", ":1: 'server' must be a section"},
      {"- 1\n", ":1: expected sections"},
      {"server:\n  port: 1\n  host: ''\n  port: 2\n",
       ":4: the key 'server.port' comes twice; it is in line 2 already"},
      {"server:\n  port: 1\n  'port': 1\n", ":3: the key 'server.port' comes twice"},
      {"server: {port: 1, port: 2}\n", ":1: the key 'server.port' comes twice"},
      {"server:\n  port: 1\nlog:\n  level: info\nserver:\n  host: ''\n",
       ":5: the key 'server' comes twice; it is in line 1 already"},
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
      {"spec:\n  tokens_max: 21\n", "spec.tokens_max: 21 is outside [0, 20]"},
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

TEST_F(ConfigTest, AFolderOfModelsKeepsTheModelThatIsNamed) {
  const std::string folder = testing::TempDir() + "config_models";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/*.gguf") << "GGUF";
  for (const char* path : {"tidepool", "other.gguf"}) {
    const auto config =
        Load("", {StrCat("model.path=", path), StrCat("server.models_dir=", folder)});
    ASSERT_TRUE(config.ok()) << config.status().message();
    ASSERT_EQ(config->models.size(), 2U);
    EXPECT_EQ(config->models[0].config->model.path, path);
    // A name of "*" would be one for all names.
    EXPECT_EQ(config->models[1].config->model_name, "star");
  }
  std::filesystem::remove_all(folder);
}

TEST_F(ConfigTest, ReadsTheModesOfTheFeedForwardNetwork) {
  const auto config = Load(
      "model:\n  side_car: a.tcp\nengine:\n  ffn_mode: 0-3:dense,4-:sign\n  ffn_also: "
      "exact,lowrank\n  sign_alpha: 1.02\n");
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->model.ffn.modes, "0-3:dense,4-:sign");
  EXPECT_EQ(config->model.ffn.also, "exact,lowrank");
  EXPECT_EQ(config->model.ffn.side_car, "a.tcp");
  EXPECT_EQ(config->model.ffn.sign_alpha, 1.02);
  EXPECT_EQ(config->model.ffn.audit_interval, 64);
}

TEST_F(ConfigTest, ReadsWhatDraftsAreLike) {
  const auto config = Load(
      "spec:\n  mode: branch\n  source: model\n  draft: small.gguf\n  required: false\n"
      "  tokens_max: 12\n  fixed: true\n  width: 3\n  threads: 2\n  acceptance: rejection\n"
      "  head: 4096\n");
  ASSERT_TRUE(config.ok()) << config.status().message();
  const SpecOptions& spec = config->model.spec;
  EXPECT_EQ(spec.mode, SpecMode::kBranch);
  EXPECT_EQ(spec.source, SpecSource::kModel);
  EXPECT_EQ(spec.draft, "small.gguf");
  EXPECT_TRUE(!spec.required && spec.fixed);
  EXPECT_EQ(spec.tokens_max, 12);
  EXPECT_EQ(spec.width, 3);
  EXPECT_EQ(spec.threads, 2);
  EXPECT_EQ(spec.acceptance, SpecAcceptance::kRejection);
  EXPECT_EQ(spec.head, 4096);
  EXPECT_EQ(Load("")->model.spec.mode, SpecMode::kAuto);
}

TEST_F(ConfigTest, TheNetworkComesInWithKeysOnly) {
  const auto reloadable = [this](const std::string& yaml) {
    return MakeReloadableConfig(*Load(yaml));
  };
  for (const char* host : {"127.0.0.1", "::1", "localhost", ""})
    EXPECT_TRUE(reloadable(StrCat("server:\n  host: \"", host, "\"\n")).ok()) << host;
  EXPECT_FALSE(reloadable("server:\n  host: 127.evil.example\n").ok());
  const auto open = reloadable("server:\n  host: 0.0.0.0\n");
  ASSERT_FALSE(open.ok());
  EXPECT_NE(open.status().message().find("server.api_keys_file"), std::string::npos);
  std::ofstream(path_ + ".keys") << *ApiKeys::MakeLine("a", "0123456789abcdef") << "\n";
  EXPECT_TRUE(reloadable("server:\n  host: 0.0.0.0\n  api_keys_file: " + path_ + ".keys\n").ok());
  std::filesystem::remove(path_ + ".keys");
  EXPECT_TRUE(reloadable("server:\n  host: 0.0.0.0\n  insecure: true\n").ok());
  EXPECT_FALSE(reloadable("server:\n  tls_certificate: cert.pem\n").ok());
  EXPECT_FALSE(reloadable("server:\n  api_keys_file: /nowhere\n").ok());
}

TEST_F(ConfigTest, PathsOfSocketsHaveTheSystemsLength) {
  const std::string longest(107, 'x');
  for (const auto& [key, before] : std::map<std::string, std::string>{
           {"server.unix_socket", ""}, {"server.admin_socket", ""}, {"grpc.address", "unix:"}}) {
    const auto reloadable = [&, key = key, before = before](const std::string& path) {
      return MakeReloadableConfig(*Load("", {StrCat(key, "=", before, path)}));
    };
    EXPECT_TRUE(reloadable(longest).ok()) << key;
    const Status refused = reloadable(longest + "x").status();
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(refused.message(),
              key + ": the path of a socket has at most 107 bytes, and this one 108");
  }
}

TEST_F(ConfigTest, AReloadTakesWhatItCanAndNamesTheRest) {
  ServerConfig running = *Load("");
  const auto fresh = Load(
      "server:\n  body_bytes_max: 2048\n  port: 9000\nlog:\n  level: debug\nmodel:\n  path: "
      "other\n");
  EXPECT_EQ(TakeReloadable(*fresh, running),
            (std::vector<std::string>{"model.path", "server.port"}));
  EXPECT_EQ(running.body_bytes_max, 2048);
  EXPECT_EQ(running.log_level, "debug");
  EXPECT_EQ(running.port, 8080);
  EXPECT_EQ(running.model.path, "tidepool");
  EXPECT_TRUE(TakeReloadable(running, running).empty());
}

TEST_F(ConfigTest, ListsAreSplitAtCommas) {
  EXPECT_EQ(SplitList(" a, b ,,c"), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_TRUE(SplitList(" , ").empty());
}

TEST_F(ConfigTest, HostsAndOriginsAreChecked) {
  const auto reloadable = [](const std::string& hosts, const std::string& origins) {
    ServerConfig config;
    config.allowed_hosts = hosts;
    config.allowed_origins = origins;
    return MakeReloadableConfig(config);
  };
  const auto good =
      reloadable("Example.org, [::2]",
                 "https://Example.org, http://a:8080, http://localhost:*, null, file://");
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ((*good)->allowed_hosts, (std::vector<std::string>{"example.org", "[::2]"}));
  EXPECT_EQ((*good)->allowed_origins[0], "https://example.org");
  EXPECT_FALSE((*good)->needs_keys());
  EXPECT_TRUE(OriginMatches("http://localhost:*", "http://localhost:5173"));
  EXPECT_TRUE(OriginMatches("http://localhost:*", "http://localhost"));
  EXPECT_TRUE(OriginMatches("null", "null"));
  for (const char* other : {"http://localhost.org:1", "http://localhost:1x",
                            "http://localhost:", "https://localhost:1"})
    EXPECT_FALSE(OriginMatches("http://localhost:*", other)) << other;
  for (const char* host : {"example.org:80", "http://example.org", "a/b"})
    EXPECT_FALSE(reloadable(host, "").ok()) << host;
  for (const char* host : {"*.a.b", "a*", "a, *.b"})
    EXPECT_NE(reloadable(host, "").status().message().find("name each host"), std::string::npos)
        << host;
  EXPECT_EQ((*reloadable("*", ""))->allowed_hosts[0], "*");
  // Browsers omit the default port.
  const auto ports =
      reloadable("", "https://C.d:443, http://e.f:80, http://[::2]:80, https://g.h:80");
  EXPECT_EQ(
      (*ports)->allowed_origins,
      (std::vector<std::string>{"https://c.d", "http://e.f", "http://[::2]", "https://g.h:80"}));
  for (const char* origin :
       {"example.org", "https://", "https://a/b", "://a", "http://*:1", "http://a:*b",
        "http://a:", "http://a:b", "http://a:70000", "http://:1"})
    EXPECT_FALSE(reloadable("", origin).ok()) << origin;
}

TEST_F(ConfigTest, TheShippedFileDocumentsEveryKeyWithItsDefault) {
  const std::string shipped = SOURCE_DIR "/config/thermocline.yaml";
  const auto config = LoadServerConfig(shipped, {});
  ASSERT_TRUE(config.ok()) << config.status().message();
  const ServerConfig defaults;
  EXPECT_EQ(config->port, defaults.port);
  EXPECT_EQ(config->sampling.temperature, defaults.sampling.temperature);
  EXPECT_EQ(config->drain_timeout_s, defaults.drain_timeout_s);
  EXPECT_EQ(config->model.ffn.modes, defaults.model.ffn.modes);
  EXPECT_EQ(config->model.ffn.audit_interval, defaults.model.ffn.audit_interval);
  EXPECT_EQ(config->model.ffn.sign_alpha_layers, defaults.model.ffn.sign_alpha_layers);
  EXPECT_EQ(config->model.spec.mode, defaults.model.spec.mode);
  EXPECT_EQ(config->model.spec.tokens_max, defaults.model.spec.tokens_max);
  EXPECT_EQ(config->model.spec.width, defaults.model.spec.width);
  EXPECT_EQ(config->model.spec.acceptance, defaults.model.spec.acceptance);
  // No key differs, so a reload would change nothing.
  ServerConfig same = defaults;
  EXPECT_EQ(TakeReloadable(*config, same), std::vector<std::string>());
  const auto text = base::ReadFileToString(shipped);
  for (const std::string& key : ConfigKeys()) {
    EXPECT_NE(text->find("  " + key.substr(key.find('.') + 1) + ":"), std::string::npos)
        << key << " is not documented";
  }
}

}  // namespace
}  // namespace thermocline::server
