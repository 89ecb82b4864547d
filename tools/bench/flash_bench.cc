#include "tools/bench/flash_bench.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "engine/base/file.h"
#include "engine/base/index.h"
#include "engine/base/posix_error.h"
#include "engine/charts/chart.h"
#include "engine/model/open/builtin.h"
#include "engine/store/device_probe.h"
#include "tools/common/console.h"
#include "tools/common/side_car_options.h"

namespace thermocline::tools {
namespace {

using store::Curve;

constexpr std::uint64_t kSmallFile = 16 << 20, kTemporaryFile = 256 << 20;

// The file for the measurement.
struct Measured {
  std::string path;       // to open
  std::string by;         // its description for the report
  int temporary_fd = -1;  // keeps the unnamed temporary file open
};

// Writes incompressible data. False: errno has the reason.
bool WriteNoise(int fd, std::uint64_t bytes) {
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> piece(1 << 17);
  for (std::uint64_t done = 0; done < bytes;) {
    for (std::uint64_t& word : piece) word = random();
    const ssize_t n = ::write(fd, piece.data(), piece.size() * sizeof(piece[0]));
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) done += n;
  }
  return ::fsync(fd) == 0;
}

// Creates an unnamed file in `folder` that vanishes with its descriptor; -1 and errno on failure.
int MakeTemporary(const std::string& folder) {
  std::string name = folder + "/.thermocline-flash-XXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) return -1;
  ::unlink(name.c_str());
  if (WriteNoise(fd, kTemporaryFile)) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

Result<Measured> ChooseFile(const std::string& target) {
  std::string path = target;
  if (!base::PathExists(path)) {
    ASSIGN_OR_RETURN(path, model::ResolveModel(target));
  }
  const bool folder = base::IsDirectory(path);
  if (!folder && base::PathExists(path + ".tcb")) path += ".tcb";
  std::error_code error;
  if (!folder && (std::filesystem::file_size(path, error) >= kSmallFile || error))
    return Measured{.path = path, .by = path};
  const std::string parent = folder ? path : std::filesystem::path(path).parent_path().string();
  const std::string where = parent.empty() ? "." : parent;
  if (const int fd = MakeTemporary(where); fd >= 0) {
    return Measured{.path = StrCat("/proc/self/fd/", fd),
                    .by = StrCat("a temporary file of 256 MiB in ", where),
                    .temporary_fd = fd};
  }
  const Status refused = base::ErrnoStatus(where, "write a file of 256 MiB", errno);
  if (folder) return refused;
  return Measured{.path = path, .by = StrCat(path, ", which is small; ", refused.message())};
}

std::string ChunkName(std::uint32_t bytes) {
  return bytes >= 1 << 20 ? StrCat(bytes >> 20, " MiB") : StrCat(bytes >> 10, " KiB");
}

void PrintTable(const Curve& curve, const std::string& by) {
  const Curve::Source& source = curve.source();
  std::printf("%s\nmeasured by %s (%s)\n%s, %s the page cache, aligned to %zu bytes\n\n",
              source.device.c_str(), by.c_str(), base::HumanBytes(source.file_bytes).c_str(),
              source.method.c_str(), source.direct ? "around" : "through", source.alignment);
  std::printf("GB/s      depth");
  for (const int depth : Curve::kDepths) std::printf("%7d", depth);
  std::printf("   best depth    reads/s\n");
  for (std::size_t i = 0; i < Curve::kChunks.size(); ++i) {
    const double chunk = Curve::kChunks[i];
    std::printf("%-15s", ChunkName(Curve::kChunks[i]).c_str());
    double best = 0;
    for (const double rate : curve.reads_per_s()[i]) {
      if (rate > 0) {
        std::printf("%7.3f", rate * chunk / 1e9);
      } else {
        std::printf("%7s", "-");
      }
      best = std::max(best, rate);
    }
    if (best > 0) std::printf("%13d %10.0f", curve.BestDepth(chunk), best);
    std::printf("\n");
  }
  std::printf("\none pass through the file: %.3f GB/s\n", curve.SequentialBandwidth() / 1e9);
}

Json Report(const Curve& curve, const std::string& by) {
  Json report = curve.ToJson();
  report.Set("measured_by", by);
  Json::Array best;
  for (const std::uint32_t chunk : Curve::kChunks) {
    best.push_back(Json::Object{{"chunk_bytes", chunk},
                                {"depth", curve.BestDepth(chunk)},
                                {"gb_s", curve.Bandwidth(chunk) / 1e9},
                                {"read_s", curve.ReadTime(chunk)}});
  }
  report.Set("best", std::move(best));
  return report;
}

Status WritePlot(const std::string& path, const Curve& curve) {
  charts::Chart bandwidth{.title = StrCat("Random reads: ", curve.source().device),
                          .x = {.label = "KiB a read", .log = true},
                          .y = {.label = "GB/s", .min = 0.0}};
  charts::Chart reads{.title = "The same, in reads",
                      .x = {.label = "reads in flight", .log = true},
                      .y = {.label = "reads/s", .log = true}};
  const auto depth_colors = charts::Colors(base::IntSize(Curve::kDepths));
  for (std::size_t d = 0; d < Curve::kDepths.size(); ++d) {
    charts::Series series{.label = StrCat("depth ", Curve::kDepths[d]), .color = depth_colors[d]};
    for (std::size_t i = 0; i < Curve::kChunks.size(); ++i) {
      const double rate = curve.reads_per_s()[i][d], chunk = Curve::kChunks[i];
      if (rate > 0) series.points.emplace_back(chunk / 1024, rate * chunk / 1e9);
    }
    bandwidth.series.push_back(std::move(series));
  }
  const auto chunk_colors = charts::Colors(base::IntSize(Curve::kChunks));
  for (std::size_t i = 0; i < Curve::kChunks.size(); ++i) {
    charts::Series series{.label = ChunkName(Curve::kChunks[i]), .color = chunk_colors[i]};
    for (std::size_t d = 0; d < Curve::kDepths.size(); ++d) {
      const double rate = curve.reads_per_s()[i][d];
      if (rate > 0) series.points.emplace_back(Curve::kDepths[d], rate);
    }
    reads.series.push_back(std::move(series));
  }
  ASSIGN_OR_RETURN(const auto file, base::FileWriter::Create(path));
  RETURN_IF_ERROR(file->Append(charts::RenderPicture(std::vector{bandwidth, reads}, 2)));
  return file->Commit();
}

}  // namespace

Status FlashBench(const std::string& target, const std::string& plot, bool json) {
  RETURN_IF_ERROR(CheckPlotPath(plot));
  ASSIGN_OR_RETURN(const Measured measured, ChooseFile(target));
  const auto curve = store::DeviceCurve(measured.path, {.measure_anew = true});
  if (measured.temporary_fd >= 0) ::close(measured.temporary_fd);
  RETURN_IF_ERROR(curve.status());
  if (!plot.empty()) RETURN_IF_ERROR(WritePlot(plot, *curve));
  if (json) {
    PrintJson(Report(*curve, measured.by));
  } else {
    PrintTable(*curve, measured.by);
  }
  return OkStatus();
}

}  // namespace thermocline::tools
