#include "engine/store/device_probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/store/device_name.h"
#include "tests/engine/store/faulty_reader.h"

namespace thermocline::store {
namespace {

constexpr double kShort = 0.02;  // seconds, since the measured values do not matter here

// A device of 50k reads per second and 2 GB/s, with gains up to queue depth 32.
Curve::Table Ideal() {
  Curve::Table table{};
  for (std::size_t i = 0; i < Curve::kChunks.size(); ++i) {
    const double best = std::min(50000.0, 2e9 / Curve::kChunks[i]);
    for (std::size_t d = 0; d < Curve::kDepths.size(); ++d)
      table[i][d] = best * std::min(1.0, Curve::kDepths[d] / 32.0);
  }
  return table;
}
const Curve::Source kSource = {
    .device = "disk", .method = "pread", .direct = true, .alignment = 512, .file_bytes = 123};

TEST(Curve, ComesBackWhatWasMeasured) {
  const Curve curve(kSource, Ideal(), 2.5e9);
  EXPECT_EQ(curve.SequentialBandwidth(), 2.5e9);
  for (std::size_t i = 0; i < Curve::kChunks.size(); ++i) {
    const double chunk = Curve::kChunks[i], best = Ideal()[i].back();
    EXPECT_EQ(curve.BestDepth(chunk), 32) << chunk;
    EXPECT_NEAR(curve.Bandwidth(chunk), best * chunk, 1e-6 * best * chunk);
    EXPECT_NEAR(curve.ReadTime(chunk), 1 / best, 1e-6 / best);
  }
}

TEST(Curve, BetweenAndBeyondTheMeasuredSizes) {
  const Curve curve(kSource, Ideal(), 2e9);
  EXPECT_NEAR(curve.Bandwidth(12000), 50000.0 * 12000, 1);  // limited by reads
  EXPECT_NEAR(curve.Bandwidth(200000), 2e9, 1);             // limited by bytes
  EXPECT_NEAR(curve.ReadTime(100), 1 / 50000.0, 1e-9);      // the time of 4 KiB
  EXPECT_NEAR(curve.Bandwidth(64 << 20), 2e9, 1);
  EXPECT_NEAR(curve.ReadTime(64 << 20), (64 << 20) / 2e9, 1e-9);
  double last = 0;
  for (double bytes = 512; bytes < 8e6; bytes *= 1.1) {
    EXPECT_GE(curve.ReadTime(bytes), last * (1 - 1e-9)) << bytes;
    last = curve.ReadTime(bytes);
  }
}

TEST(Curve, SizesThatWereNotMeasured) {
  Curve::Table table{};
  table[1] = Ideal()[1];
  table[3] = Ideal()[3];
  table[3][5] = table[3][6] = 0;
  const Curve curve(kSource, table, 1e9);
  EXPECT_NEAR(curve.ReadTime(4096), 1 / 50000.0, 1e-9);
  EXPECT_NEAR(curve.Bandwidth(16384), 50000.0 * 16384, 1e3);
  EXPECT_NEAR(curve.Bandwidth(1 << 20), 32768 * 50000.0, 1e3);
  EXPECT_EQ(curve.BestDepth(1 << 20), 32);
}

// Twice the wait is not worth a gain of one percent at twice the depth.
TEST(Curve, TheLeastDepthThatIsEnough) {
  Curve::Table table = Ideal();
  table[0] = {1000, 4000, 9000, 9600, 9700, 9800, 10000};
  EXPECT_EQ(Curve(kSource, table, 1e9).BestDepth(4096), 32);
  table[0] = {1000, 4000, 9700, 9000, 9000, 9000, 10000};
  EXPECT_EQ(Curve(kSource, table, 1e9).BestDepth(4096), 16);
}

TEST(Curve, AsJsonAndBack) {
  const Curve curve(kSource, Ideal(), 2.5e9);
  const auto back = Curve::FromJson(*base::ParseJson(curve.ToJson().Dump()));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->ToJson().Dump(), curve.ToJson().Dump());
  for (const char* key : {"version", "device", "method", "direct", "alignment", "file_bytes",
                          "chunk_bytes", "depths", "reads_per_s", "sequential_bytes_per_s"}) {
    for (const Json& value : {Json(), Json(true), Json(-1.5), Json("x"), Json(Json::Array{})}) {
      if (std::string(key) == "direct" && value.is_bool()) continue;
      if (value.is_string() && (std::string(key) == "device" || std::string(key) == "method"))
        continue;
      Json json = curve.ToJson();
      json.Set(key, value);
      EXPECT_EQ(Curve::FromJson(json).status().code(), StatusCode::kDataLoss)
          << key << " " << value.Dump();
    }
  }
  Json nothing = curve.ToJson();
  Json::Array rows;
  for (std::size_t i = 0; i < Curve::kChunks.size(); ++i)
    rows.push_back(Json::Array(Curve::kDepths.size(), Json(0.0)));
  nothing.Set("reads_per_s", std::move(rows));
  EXPECT_FALSE(Curve::FromJson(nothing).ok());
}

class Probes : public testing::Test {
 protected:
  void SetUp() override {
    base::ConfigureLog(base::LogLevel::kOff, false);
    std::filesystem::create_directories(folder_);
    ::setenv("XDG_CACHE_HOME", (folder_ + "/cache").c_str(), 1);
    WriteFile(3 << 20);
  }
  void TearDown() override {
    ::unsetenv("XDG_CACHE_HOME");
    std::filesystem::remove_all(folder_);
  }
  void WriteFile(std::size_t bytes) { std::ofstream(path_) << std::string(bytes, 'x'); }
  std::string CacheFile() const {
    std::string found;
    const std::string cache = folder_ + "/cache/thermocline/flash";
    if (!std::filesystem::exists(cache)) return found;
    for (const auto& entry : std::filesystem::directory_iterator(cache)) {
      EXPECT_EQ(found, "");
      found = entry.path().string();
    }
    return found;
  }
  Result<Curve> Ask(bool anew = false) {
    return DeviceCurve(path_, {.measure_anew = anew, .seconds = kShort});
  }
  // Makes the cached measurement recognizable.
  void Mark(double sequential) {
    Json json = *base::ParseJson(*base::ReadFileToString(CacheFile()));
    json.Set("sequential_bytes_per_s", sequential);
    std::ofstream(CacheFile()) << json.Dump();
  }
  const std::string folder_ =
      testing::TempDir() + "thermocline device probe " + std::to_string(::getpid());
  const std::string path_ = folder_ + "/blocks.bin";
};

TEST_F(Probes, MeasureWhatFitsTheFile) {
  for (const std::size_t bytes : {4096, 100 << 10, 3 << 20}) {
    WriteFile(bytes);
    const auto curve = Ask(true);
    ASSERT_TRUE(curve.ok()) << curve.status().message();
    EXPECT_EQ(curve->source().file_bytes, bytes);
    EXPECT_GT(curve->SequentialBandwidth(), 0);
    for (std::size_t i = 0; i < Curve::kChunks.size(); ++i) {
      const bool fits = Curve::kChunks[i] <= bytes;
      EXPECT_EQ(curve->reads_per_s()[i][0] > 0, fits) << bytes << " " << Curve::kChunks[i];
    }
  }
  WriteFile(100);
  EXPECT_EQ(Ask(true).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(Probes, RememberEachDevice) {
  ASSERT_TRUE(Ask().ok());
  Mark(12345);
  EXPECT_EQ(Ask()->SequentialBandwidth(), 12345);
  EXPECT_NE(Ask(true)->SequentialBandwidth(), 12345);  // and the new measurement is cached
  EXPECT_NE(Ask()->SequentialBandwidth(), 12345);
}

TEST_F(Probes, DoNotTrustAFewBytesForMany) {
  WriteFile(8192);
  ASSERT_TRUE(Ask().ok());
  Mark(12345);
  WriteFile(3 << 20);
  EXPECT_NE(Ask()->SequentialBandwidth(), 12345);
  Mark(12345);
  WriteFile(8192);
  EXPECT_EQ(Ask()->SequentialBandwidth(), 12345);
}

TEST_F(Probes, MeasureAnewWhatIsDamaged) {
  ASSERT_TRUE(Ask().ok());
  const std::string good = *base::ReadFileToString(CacheFile());
  Json old = *base::ParseJson(good), other = old;
  old.Set("version", 0);
  other.Set("key", "another disk");
  for (const std::string& text : {std::string(), std::string("{"), std::string("[1]"),
                                  good.substr(0, good.size() / 2), old.Dump(), other.Dump()}) {
    std::ofstream(CacheFile()) << text;
    ASSERT_TRUE(Ask().ok()) << text;
    const auto now = base::ParseJson(*base::ReadFileToString(CacheFile()));
    ASSERT_TRUE(now.ok()) << text;
    EXPECT_TRUE(Curve::FromJson(*now).ok()) << text;
  }
}

TEST_F(Probes, WorkWithoutAPlaceToRemember) {
  std::ofstream(folder_ + "/file") << "not a folder";
  ::setenv("XDG_CACHE_HOME", (folder_ + "/file").c_str(), 1);
  EXPECT_TRUE(Ask().ok());
}

TEST_F(Probes, SayWhatTheDeviceSaid) {
  auto open = OpenBlockReader(path_, {.depth = 256});
  ASSERT_TRUE(open.ok());
  FaultyReader reader(*std::move(open));
  reader.Inject({.kind = Fault::Kind::kError, .begin = 1 << 20});
  const Status status = MeasureCurve(reader, "disk", kShort).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("Input/output error"), std::string::npos) << status.message();
  EXPECT_EQ(reader.in_flight(), 0);
  reader.Clear();
  EXPECT_TRUE(MeasureCurve(reader, "disk", kShort).ok());
}

TEST_F(Probes, NameTheDevice) {
  const auto name = DeviceOf(path_), memory = DeviceOf("/dev/shm"), system = DeviceOf("/proc");
  ASSERT_TRUE(name.ok() && memory.ok() && system.ok());
  EXPECT_EQ(DeviceOf(folder_)->key, name->key);
  EXPECT_NE(memory->key, system->key);
  EXPECT_NE(system->readable.find("proc"), std::string::npos) << system->readable;
  EXPECT_EQ(DeviceOf(path_ + "/none").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace thermocline::store
