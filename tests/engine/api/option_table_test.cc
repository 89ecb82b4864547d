#include "engine/api/option_table.h"

#include <gtest/gtest.h>

#include <set>

namespace thermocline {
namespace {

const OptionValue& ValueOf(const std::vector<ModelOption>& options, std::string_view key) {
  for (const ModelOption& option : options) {
    if (option.key == key) return option.value;
  }
  ADD_FAILURE() << key << " is no option";
  return options.front().value;
}

TEST(OptionTable, EveryOptionHasANameOfItsOwnAndHelp) {
  ModelOptions options;
  std::set<std::string> flags, keys;
  for (const ModelOption& option : OptionsOf(options)) {
    const std::string flag = option.flag, key = option.key;
    EXPECT_FALSE(flag.empty() && key.empty());
    EXPECT_STRNE(option.help, "") << flag << key;
    EXPECT_TRUE(flag.empty() || flags.insert(flag).second) << flag;
    EXPECT_TRUE(key.empty() || keys.insert(key).second) << key;
  }
}

TEST(OptionTable, NamesBecomeEnums) {
  ModelOptions options;
  const auto table = OptionsOf(options);
  const auto set = [&](const char* key, const char* text) {
    return SetValue(ValueOf(table, key), key, text);
  };
  EXPECT_TRUE(set("engine.kv_type", "q8_0").ok());
  EXPECT_EQ(options.kv_type, KvType::kQ8_0);
  EXPECT_TRUE(set("hot.device", "cuda").ok());
  EXPECT_EQ(options.hot.device, HotDevice::kCuda);
  EXPECT_TRUE(set("model.activation", "relu2").ok());
  EXPECT_EQ(options.activation, Activation::kRelu2);
  EXPECT_TRUE(set("model.activation", "").ok());
  EXPECT_FALSE(options.activation.has_value());
  EXPECT_EQ(set("spec.mode", "fast").message(),
            "spec.mode: 'fast' is none of 'off', 'sync', 'branch', 'exhaustive', 'auto'");
  EXPECT_EQ(set("spec.source", "fast").message(),
            "spec.source: 'fast' is none of '', 'model', 'ngram', 'self'");
  EXPECT_FALSE(set("engine.kv_type", "").ok());
}

TEST(OptionTable, NumbersKeepTheirRanges) {
  ModelOptions options;
  const auto table = OptionsOf(options);
  const auto message = [&](const char* key, const char* text) {
    return SetValue(ValueOf(table, key), key, text).message();
  };
  EXPECT_EQ(message("spec.tokens_max", "21"), "spec.tokens_max: 21 is outside [0, 20]");
  EXPECT_EQ(message("spec.tokens_max", "1.5"), "spec.tokens_max: '1.5' is no whole number");
  EXPECT_EQ(message("engine.ffn_recall", "2"), "engine.ffn_recall: 2 is outside [0, 1]");
  EXPECT_NE(message("engine.ffn_recall", "nan"), "");
  EXPECT_EQ(message("memory.budget_bytes", "2GiB"), "");
  EXPECT_EQ(options.memory.budget_bytes, std::int64_t{2} << 30);
}

TEST(OptionTable, ValuesAreComparedAndCopied) {
  ModelOptions from = DaemonDefaults(), to;
  const auto sources = OptionsOf(from), targets = OptionsOf(to);
  EXPECT_FALSE(SameValue(ValueOf(targets, "spec.mode"), ValueOf(sources, "spec.mode"), true));
  EXPECT_EQ(to.spec.mode, SpecMode::kAuto);
  EXPECT_TRUE(SameValue(ValueOf(targets, "spec.mode"), ValueOf(sources, "spec.mode"), false));
  EXPECT_FALSE(SameValue(ValueOf(targets, "model.path"), ValueOf(sources, "model.path"), false));
  EXPECT_EQ(to.path, "");
}

}  // namespace
}  // namespace thermocline
