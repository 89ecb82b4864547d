#include "server/batch/batch.h"

#include <condition_variable>
#include <list>
#include <utility>

#include "engine/base/index.h"
#include "engine/base/log.h"
#include "engine/base/mutex.h"
#include "engine/base/ratio.h"
#include "server/batch/batch_file.h"
#include "server/core/service.h"
#include "server/http/generated_answer.h"
#include "server/http/refusal.h"
#include "server/routes/routes.h"

namespace thermocline::batch {
namespace {

// Signals, from the engine's thread, that an answer has new output.
class News {
 public:
  void Tell() {
    const base::MutexLock lock(mutex_);
    told_ = true;
    changed_.notify_one();
  }
  // Waits for a signal, at most 200 ms.
  void Wait() {
    base::MutexLock lock(mutex_);
    if (!told_) changed_.wait_for(mutex_, std::chrono::milliseconds(200));
    told_ = false;
  }

 private:
  base::Mutex mutex_;
  std::condition_variable_any changed_;
  bool told_ GUARDED_BY(mutex_) = false;
};

class Runner {
 public:
  Runner(const BatchOptions& options, server::Service& service, AnswerFile& file,
         BatchCounts& counts)
      : options_(options), service_(service), file_(file), counts_(counts) {}

  Status Answer(const std::vector<BatchRequest>& requests) {
    // The engine's running requests, and the same number of waiting ones.
    const int most = 2 * options_.server.serving.sequences_max;
    auto next = requests.begin();
    while (next != requests.end() || !running_.empty()) {
      for (; next != requests.end() && base::IntSize(running_) < most; ++next)
        if (!file_.Has(next->custom_id)) {
          ASSIGN_OR_RETURN(const bool begun, Begin(*next));
          if (!begun) break;
        }
      RETURN_IF_ERROR(TakeAll());
      if (!Show()) return Stopped();
      if (!running_.empty()) news_->Wait();
    }
    if (counts_.put_off == 0) return OkStatus();
    return base::Unavailable(counts_.put_off, " of ", counts_.requests,
                             " requests failed for now; the same command tries them again. The "
                             "first: ",
                             first_put_off_);
  }

 private:
  struct Running {
    const BatchRequest* request;
    std::unique_ptr<http::Answer> answer;
  };

  // False: there is no room for its grammar until a running request has ended.
  Result<bool> Begin(const BatchRequest& request) {
    http::HttpRequest asked(boost::beast::http::verb::post, request.url, 11, request.body);
    asked.set(boost::beast::http::field::content_type, "application/json");
    const http::ResponseHead head{.request_id = request.custom_id,
                                  .arrived = std::chrono::steady_clock::now()};
    http::Action action = routes::AllRoutes().Answer(service_, asked, head);
    if (auto* plan = std::get_if<http::GenerationPlan>(&action)) {
      const Status compiled = plan->submission.compiles() ? plan->submission.Compile() : OkStatus();
      if (compiled.reason() == Reason::kGrammarMemory && !running_.empty()) return false;
      if (!compiled.ok()) {
        RETURN_IF_ERROR(Add(request, http::RefusalResponse(service_, head, compiled)));
        return true;
      }
      auto answer = http::GeneratedAnswer::Start(service_, head, std::move(*plan),
                                                 [news = news_] { news->Tell(); });
      if (!answer.ok()) return answer.status().Annotate(request.custom_id);
      running_.push_back({&request, *std::move(answer)});
      return true;
    }
    RETURN_IF_ERROR(Add(request, std::get<http::HttpResponse>(action)));
    return true;
  }

  Status Add(const BatchRequest& request, const http::HttpResponse& response) {
    const int status = response.result_int();
    if (status >= 500 || status == 429) {  // a temporary failure, not an answer
      if (counts_.put_off++ == 0) first_put_off_ = response.body();
      return OkStatus();
    }
    ++counts_.answered;
    if (status >= 400) ++counts_.failed;
    return file_.Add(request, status, response.body());
  }

  Status TakeAll() {
    for (auto it = running_.begin(); it != running_.end();) {
      http::Answer::Output output = it->answer->NextOutput();
      if (output.complete) output.response = it->answer->FullResponse();
      if (output.response.has_value()) {
        RETURN_IF_ERROR(Add(*it->request, *output.response));
        it = running_.erase(it);
      } else {
        ++it;
      }
    }
    return OkStatus();
  }

  bool Show() const {
    return !options_.on_progress ||
           options_.on_progress(base::Ratio(counts_.answered, counts_.requests));
  }

  Status Stopped() {
    for (const Running& running : running_) running.answer->Cancel(CancelCause::kApi);
    return Status(StatusCode::kCancelled,
                  StrCat("stopped after ", counts_.answered, " of ", counts_.requests,
                         " answers; the same command goes on"));
  }

  const BatchOptions& options_;
  server::Service& service_;
  AnswerFile& file_;
  BatchCounts& counts_;
  const std::shared_ptr<News> news_ = std::make_shared<News>();
  std::list<Running> running_;
  std::string first_put_off_;
};

// A batch has no waiting clients, so it needs no deadlines or queue limits.
server::ServerConfig ConfigOf(const BatchOptions& options) {
  server::ServerConfig config = options.server;
  config.host = "";
  config.request_timeout_s = 0;
  config.serving.queue_capacity = 10'000;
  config.serving.queue_prefill_tokens = 0;
  return config;
}

}  // namespace

Status Run(const BatchOptions& options, BatchCounts& counts) {
  ASSIGN_OR_RETURN(const auto requests, ReadRequests(options.input));
  ASSIGN_OR_RETURN(const auto file, AnswerFile::Open(options.output, requests));
  counts.requests = base::IntSize(requests);
  for (const BatchRequest& request : requests) counts.resumed += file->Has(request.custom_id);
  counts.answered = counts.resumed;
  counts.failed = file->failed();
  if (counts.answered < counts.requests) {
    ASSIGN_OR_RETURN(const auto reloadable, server::MakeReloadableConfig(ConfigOf(options)));
    server::Service service(reloadable);
    RETURN_IF_ERROR(service.Load());
    const Status answered = Runner(options, service, *file, counts).Answer(requests);
    service.StopWorkers();
    service.StopEngine();
    RETURN_IF_ERROR(answered);
  }
  return file->Commit();
}

}  // namespace thermocline::batch
