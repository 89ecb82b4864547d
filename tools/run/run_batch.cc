#include "tools/run/run_batch.h"

#include <cstdio>

#include "engine/base/stopwatch.h"
#include "engine/base/strings.h"
#include "server/batch/batch.h"
#include "tools/common/console.h"
#include "tools/run/generation.h"

namespace thermocline::tools {
namespace {

std::string OutputBeside(std::string input) {
  constexpr std::string_view kEnding = ".jsonl";
  if (input.ends_with(kEnding)) input.resize(input.size() - kEnding.size());
  return input + ".answers.jsonl";
}

}  // namespace

Status RunBatch(const BatchFiles& files, const ModelOptions& model) {
  const std::string output = files.output.empty() ? OutputBeside(files.input) : files.output;
  CatchInterrupts();
  ProgressBar bar("answering");
  batch::BatchOptions options;
  options.input = files.input;
  options.output = output;
  options.server.model = model;
  options.on_progress = [&](double share) {
    bar.Show(share);
    return !Interrupted();
  };
  const base::Stopwatch watch;
  batch::BatchCounts counts;
  const Status done = batch::Run(options, counts);
  bar.Clear();
  RETURN_IF_ERROR(done);
  std::fprintf(stderr, "%d answers in %s, %d of them now, in %.1f s\n", counts.answered,
               output.c_str(), counts.answered - counts.resumed, watch.Seconds());
  if (counts.failed == 0) return OkStatus();
  return base::FailedPrecondition(counts.failed, " of ", counts.requests,
                                  " answers are errors: see their response.status_code in ",
                                  output);
}

}  // namespace thermocline::tools
