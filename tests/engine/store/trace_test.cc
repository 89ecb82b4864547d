// Traces: written data is read back; truncated files and files of other kinds.
#include "engine/store/trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

namespace thermocline::store {
namespace {

constexpr int kLayers = 3, kNeurons = 400;

std::string PathOf(const char* name) { return testing::TempDir() + name; }

using Sets = std::vector<std::vector<int>>;  // [tokens * layers]

Sets RandomSets(int tokens) {
  std::mt19937 random(3);
  Sets sets(static_cast<std::size_t>(tokens * kLayers));
  for (std::size_t i = 0; i < sets.size(); ++i) {
    // From none to all.
    for (int neuron = 0; neuron < kNeurons; ++neuron) {
      if (random() % 12 < i % 13) sets[i].push_back(neuron);
    }
  }
  return sets;
}

std::string WriteTrace(const Sets& sets) {
  const std::string path = PathOf("a.trace");
  auto writer = TraceWriter::Create(path, {kLayers, kNeurons, "0123456789abcdef"});
  EXPECT_TRUE(writer.ok());
  for (const auto& set : sets) (*writer)->Add(set);
  EXPECT_EQ((*writer)->tokens(), static_cast<std::int64_t>(sets.size()) / kLayers);
  EXPECT_TRUE((*writer)->Commit().ok());
  return path;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Result<Trace> ReadBytes(const std::string& bytes) {
  const std::string path = PathOf("b.trace");
  std::ofstream(path, std::ios::binary) << bytes;
  return ReadTrace(path);
}

TEST(Trace, RoundTrip) {
  const Sets sets = RandomSets(20);
  const auto trace = ReadTrace(WriteTrace(sets));
  ASSERT_TRUE(trace.ok()) << trace.status().ToString();
  EXPECT_EQ(trace->num_hidden_layers, kLayers);
  EXPECT_EQ(trace->intermediate_size, kNeurons);
  EXPECT_EQ(trace->model_hash, "0123456789abcdef");
  ASSERT_EQ(trace->tokens, 20);
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const auto set =
        trace->Set(static_cast<std::int64_t>(i / kLayers), static_cast<int>(i % kLayers));
    ASSERT_EQ(std::vector<int>(set.begin(), set.end()), sets[i]) << i;
  }
}

// A killed run leaves the tokens before.
TEST(Trace, CutOffAnywhereKeepsTheWholeTokens) {
  const Sets sets = RandomSets(6);
  const std::string bytes = Contents(WriteTrace(sets));
  const std::size_t header = 8 + 12 + 16;
  std::int64_t tokens = -1;
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const auto trace = ReadBytes(bytes.substr(0, size));
    if (size < header) {
      ASSERT_FALSE(trace.ok()) << size;
      continue;
    }
    ASSERT_TRUE(trace.ok()) << size << trace.status().ToString();
    ASSERT_GE(trace->tokens, tokens);
    tokens = trace->tokens;
    ASSERT_EQ(trace->begin.size(), static_cast<std::size_t>(tokens * kLayers) + 1);
    ASSERT_EQ(trace->begin.back(), trace->neurons.size());
  }
  EXPECT_EQ(tokens, 6);
}

TEST(Trace, GarbageIsRefused) {
  const std::string bytes = Contents(WriteTrace(RandomSets(2)));
  EXPECT_EQ(ReadTrace(PathOf("no-such-file.trace")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadBytes("GGUF" + bytes).status().code(), StatusCode::kInvalidArgument);
  for (const std::size_t at : {8, 12, 16}) {  // layers, neurons, bytes of the hash
    for (const char* number : {"\xFF\xFF\xFF\xFF", at == 16 ? "\xFF\xFF\xFF\x7F" : "\0\0\0\0"}) {
      std::string wrong = bytes;
      wrong.replace(at, 4, number, 4);
      EXPECT_EQ(ReadBytes(wrong).status().code(), StatusCode::kInvalidArgument) << at;
    }
  }
  const std::string header = bytes.substr(0, 36);
  // More neurons than exist; one beyond the last; a number of 35 bits.
  for (const char* set : {"\x91\x03", "\x01\x90\x03", "\x02\x8F\x03\x00", "\xFF\xFF\xFF\xFF\x7F"}) {
    const auto trace = ReadBytes(header + set + (set[1] == '\x8F' ? std::string(1, '\0') : ""));
    EXPECT_EQ(trace.status().code(), StatusCode::kDataLoss) << set;
    EXPECT_NE(trace.status().message().find("b.trace"), std::string::npos);
  }
}

// No byte value makes the reader crash or return impossible data.
TEST(Trace, AnyByteMayBeWrong) {
  const std::string bytes = Contents(WriteTrace(RandomSets(3)));
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::string wrong = bytes;
      wrong[at] = static_cast<char>(wrong[at] ^ flip);
      const auto trace = ReadBytes(wrong);
      if (!trace.ok()) continue;
      for (const std::uint32_t neuron : trace->neurons)
        ASSERT_LT(neuron, static_cast<std::uint32_t>(trace->intermediate_size));
      ASSERT_EQ(trace->begin.back(), trace->neurons.size());
    }
  }
}

// A typing error (--record-trace MODEL) must not replace the model.
TEST(Trace, ReplacesTracesAlone) {
  const std::string path = WriteTrace(RandomSets(2));
  EXPECT_EQ(WriteTrace(RandomSets(3)), path);
  const std::string model = PathOf("precious.gguf");
  std::ofstream(model) << "GGUF and much more";
  const auto writer = TraceWriter::Create(model, {kLayers, kNeurons, ""});
  ASSERT_FALSE(writer.ok());
  EXPECT_NE(writer.status().message().find("is not a trace"), std::string::npos);
  EXPECT_EQ(Contents(model), "GGUF and much more");
}

}  // namespace
}  // namespace thermocline::store
