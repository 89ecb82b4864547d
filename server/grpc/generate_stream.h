// One Generate call: validates and submits the request, and writes the generation's events.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include <boost/asio/steady_timer.hpp>

#include "server/core/strand_pool.h"
#include "server/core/submission.h"
#include "server/grpc/generate_request.h"
#include "server/grpc/messages.h"
#include "server/grpc/request_context.h"

namespace thermocline::rpc {

inline constexpr const char* kGeneratePath = "/thermocline.v1.Inference/Generate";

// The threads of gRPC and the engine only post; all work runs on the strand, except long prompts,
// which the service's workers tokenize. At most one write is in flight, and meanwhile no output is
// taken from the generation until it has ended: a slow reader gets several tokens in one message,
// and if they exceed the channel's capacity, the engine pauses. Lives until gRPC is done with it
// and no posted handler is left.
class GenerateStream : public ::grpc::ServerBidiReactor<v1::GenerateRequest, v1::GenerateEvent>,
                       public std::enable_shared_from_this<GenerateStream> {
 public:
  // Reads the message if the caller is accepted.
  static std::shared_ptr<GenerateStream> Start(const server::Strand& strand,
                                               server::Service& service, ConnectionCredit& credit,
                                               ::grpc::CallbackServerContext& context);

 private:
  using Clock = std::chrono::steady_clock;

  GenerateStream(const server::Strand& strand, server::Service& service, ConnectionCredit& credit,
                 ::grpc::CallbackServerContext& context);
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  template <typename Work>
  void Post(Work work);
  template <typename Work>
  void Guarded(Work work);
  // Runs all steps before the model is known to be loaded. An error ends the call.
  Status Begin(const server::BodyCost& cost);
  // Runs the steps before tokenizing.
  Status Admit();
  // Tokenizes the prompt, here or on a worker, then submits it.
  void Encode(bool at_once);
  // Runs `step` on a thread of `workers`, then `then` on the strand.
  void DoOn(server::Workers& workers, Status (server::Submission::*step)(),
            void (GenerateStream::*then)(const Status&));
  void OnEncoded(const Status& encoded);
  void OnCompiled(const Status& compiled);
  Status Submit();
  // Writes the available events.
  void Pump();
  // Takes output, if the client has read the earlier one or all of it is made.
  void TakeOutput();
  // True if the rest of the output is to be taken at once, since the engine has made all of it, and
  // there is memory for it.
  bool TakesRest();
  // Takes the output of one choice; false if there is none.
  bool TakeUpdate();
  // The output is made: a client that reads it slowly does not keep the model awake.
  void ReleaseModel();
  void AddEvents(int choice);
  v1::GenerateEvent& AddEvent();
  // The client has disconnected: drops further output.
  void Cancel(CancelCause cause);
  void Refuse(const Status& refusal);
  void FinishNow(const Status& status);
  // Cancels the call of a client that reads nothing for server.write_timeout_s.
  void WatchWrites();
  void CheckWrite(std::chrono::seconds allowed);

  const server::Strand strand_;
  server::Service& service_;
  std::shared_ptr<server::Service> model_;  // that the message names
  ::grpc::CallbackServerContext& context_;
  v1::GenerateRequest message_;
  RequestContext request_context_;
  std::shared_ptr<GenerateStream> self_;  // until OnDone
  // Used on the strand.
  std::shared_ptr<server::Submission> submission_;  // until it is submitted; a worker encodes it
  std::shared_ptr<server::Generation> generation_;
  std::size_t work_bytes_ = 0;  // for encoding, at most
  DeltaOptions delta_options_;
  bool progress_ = false, speculates_ = false;
  int next_choice_ = 0;
  TokenChannel::Update update_;
  std::deque<v1::GenerateEvent> events_;  // not written yet
  std::optional<server::RequestMemory::Hold> rest_hold_;
  const std::shared_ptr<std::atomic<std::int64_t>> written_ =
      std::make_shared<std::atomic<std::int64_t>>(0);
  v1::GenerateEvent in_flight_;
  std::uint64_t sequence_ = 0;
  bool writing_ = false, gone_ = false;
  std::atomic<bool> finished_{false};  // workers read it, too
  std::optional<Status> end_;          // the stream's status, once the queued events are written
  Clock::time_point write_began_;
  boost::asio::steady_timer timer_;
};

}  // namespace thermocline::rpc
