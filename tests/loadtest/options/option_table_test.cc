#include "loadtest/options/option_table.h"

#include <gtest/gtest.h>

#include <set>

#include "loadtest/options/read_options.h"

namespace thermocline::loadtest {
namespace {

// The error of these options for a run against a server; "" if they are valid.
std::string Fault(GivenOptions given) {
  given.try_emplace("URL", "http://127.0.0.1:1");
  return ReadOptions(given).status().message();
}

TEST(LoadOptionTable, EveryOptionHasANameOfItsOwnHelpAndAGroup) {
  LoadOptions options;
  std::set<std::string> names;
  for (const LoadOption& option : OptionsOf(options)) {
    EXPECT_TRUE(names.insert(option.name()).second) << option.names;
    EXPECT_STRNE(option.help, "") << option.names;
    EXPECT_STRNE(option.group, "") << option.names;
  }
}

TEST(LoadOptionTable, OptionsExcludeOptionsThatThereAre) {
  LoadOptions options;
  const auto table = OptionsOf(options);
  std::set<std::string> names;
  for (const LoadOption& option : table) names.insert(option.name());
  for (const LoadOption& option : table) {
    for (const char* other : option.excludes) {
      EXPECT_TRUE(names.contains(other)) << option.names << " excludes " << other;
      EXPECT_EQ(Fault({{option.name(), "1"}, {other, "1"}}),
                StrCat(option.name(), " contradicts ", other));
    }
  }
}

TEST(LoadOptionTable, AValueIsReadAsItIsShown) {
  LoadOptions options, read;
  const auto shown = OptionsOf(options), target = OptionsOf(read);
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const std::string& text = shown[i].value.shown;
    if (text.empty()) continue;
    EXPECT_EQ(target[i].value.set(shown[i].names, text).message(), "") << shown[i].names;
    EXPECT_EQ(OptionsOf(read)[i].value.shown, text) << shown[i].names;
  }
}

TEST(LoadOptionTable, NoTextButAFlagsIsEmpty) {
  LoadOptions options;
  for (const LoadOption& option : OptionsOf(options)) {
    if (option.is_flag() || option.is_argument()) continue;
    EXPECT_EQ(Fault({{option.name(), ""}}), option.name() + " '': it is empty");
  }
}

TEST(LoadOptionTable, NamesOfValuesAreThoseOfTheirEnums) {
  LoadOptions options;
  for (const LoadOption& option : OptionsOf(options)) {
    if (option.value.type.find('|') == std::string::npos) continue;
    for (const std::string_view name : {"http", "chaos"}) {
      const std::string message = option.value.set(option.names, std::string(name)).message();
      EXPECT_EQ(message.empty(), StrCat("|", option.value.type, "|").find(StrCat("|", name, "|")) !=
                                     std::string::npos)
          << option.names << " " << name << ": " << message;
    }
  }
}

TEST(LoadOptionTable, FaultsNameTheOptionTheTextAndWhatWasExpected) {
  EXPECT_EQ(Fault({}), "");
  EXPECT_EQ(Fault({{"--concurrency", "2.5"}}),
            "--concurrency '2.5': expected a whole number from 1 to 20000");
  EXPECT_EQ(Fault({{"--rate", "nan"}}), "--rate 'nan': expected a number from 1e-06 to 1e+05");
  EXPECT_EQ(Fault({{"--duration", "-3"}}),
            "--duration '-3': expected a time, as 90, 1.5s, 200ms, 10m or 24h");
  EXPECT_EQ(Fault({{"--max-tokens", "9-3"}}),
            "--max-tokens '9-3': expected a number of tokens from 0 on, or LOW-HIGH");
  EXPECT_EQ(Fault({{"--route", "chaos"}}), "--route 'chaos': expected one of chat, completions");
  EXPECT_EQ(Fault({{"--turns", "3"}}), "--turns needs --workload multi-turn");
  EXPECT_EQ(Fault({{"--sweep", "rate"}, {"--concurrency", "2"}}),
            "--concurrency contradicts --sweep rate");
  EXPECT_EQ(Fault({{"--sweep", "concurrency"}, {"--sweep-steps", "1,2.5"}}),
            "--sweep-steps '2.5': expected whole numbers of users");
  EXPECT_EQ(Fault({{"URL", "127.0.0.1:1/v1"}, {"--api", "grpc"}}),
            "URL '127.0.0.1:1/v1': expected no path with --api grpc, as 127.0.0.1:50051");
}

TEST(LoadOptionTable, ValuesThatAreNotGivenFollowFromOthers) {
  const auto read = [](GivenOptions given) {
    given["URL"] = "http://127.0.0.1:1";
    return *ReadOptions(given);
  };
  EXPECT_EQ(read({}).duration_s, 10);
  EXPECT_EQ(read({{"--requests", "3"}}).duration_s, kTimeMaxS);
  EXPECT_EQ(read({{"--requests", "3"}, {"--duration", "2m"}}).duration_s, 120);
  EXPECT_EQ(read({{"--sweep", "rate"}}).rate, 1);
  EXPECT_EQ(read({{"--sweep", "rate"}, {"--rate", "8"}}).rate, 8);
  const auto limits = read({{"--slo", "ttft:p95<1s,errors<1%"}}).good.limits;
  ASSERT_EQ(limits.size(), 1u);
  EXPECT_EQ(limits[0].second, 1);
  EXPECT_EQ(read({{"--slo", "ttft:p95<1s"}, {"--goodput", "ttft<2s"}}).good.limits[0].second, 2);
}

}  // namespace
}  // namespace thermocline::loadtest
