// `thermocline-load`: measures a server's performance as its clients see it.
#include <sys/resource.h>

#include <cstdio>

#include "engine/base/file.h"
#include "loadtest/options/command_line.h"
#include "loadtest/report/run_report.h"
#include "loadtest/run/load_test.h"

using namespace thermocline::loadtest;  // NOLINT: this file is only the order of steps

namespace {

// Raises the limit on open files to the hard limit.
void AllowManyConnections() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
}

thermocline::Status WriteHtml(const RunReport& report) {
  const std::string& path = report.options.report_file;
  if (path.empty()) return {};
  ASSIGN_OR_RETURN(const auto file, thermocline::base::FileWriter::Create(path));
  RETURN_IF_ERROR(file->Append(ReportHtml(report)));
  return file->Commit();
}

thermocline::Status Print(const RunReport& report) {
  const std::string text =
      report.options.json ? ReportJson(report).Dump() + "\n" : ReportText(report);
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0)
    return thermocline::base::Unavailable("standard output cannot be written");
  return {};
}

int Fail(const thermocline::Status& status) {
  std::fprintf(stderr, "thermocline-load: %s\n", status.message().c_str());
  return status.code() == thermocline::StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
}

}  // namespace

// NOLINTNEXTLINE(bugprone-exception-escape): without memory the process ends
int main(int argc, char** argv) {
  const ParsedLine line = ParseCommandLine(argc, argv);
  if (line.exit.has_value()) return *line.exit;
  AllowManyConnections();
  const auto report = RunLoadTest(line.options);
  if (!report.ok()) return Fail(report.status());
  for (const auto& status : {Print(*report), WriteHtml(*report)}) {
    if (!status.ok()) return Fail(status);
  }
  for (const std::string& note : report->server.notes)
    std::fprintf(stderr, "thermocline-load: note: %s\n", note.c_str());
  for (const std::string& failure : report->failures)
    std::fprintf(stderr, "thermocline-load: %s\n", failure.c_str());
  return report->failures.empty() ? kExitDone : kExitFailed;
}
