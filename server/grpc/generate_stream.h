// One Generate call: checks, submits, writes what the generation says.
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
#include "server/grpc/call.h"
#include "server/grpc/generate_request.h"
#include "server/grpc/messages.h"

namespace thermocline::rpc {

inline constexpr const char* kGeneratePath = "/thermocline.v1.Inference/Generate";

// gRPC's threads and the engine's only post; all work happens on the strand, but for long prompts,
// which the service's workers make into tokens. At most one write is in flight, and while it is
// nothing is taken from the generation: tokens for a slow reader come together in one message, and
// more of them than the channel holds make the engine pause. Lives until gRPC is done with it and
// nothing posted is left.
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
  // Everything before the prompt's tokens. An error: why there will be no answer.
  Status Begin(const server::BodyCost& cost);
  // Makes the tokens of a prompt, here or by the workers, then submits it.
  void Encode(bool at_once);
  // `step` on a thread of `workers`, then `then` here.
  void DoOn(server::Workers& workers, Status (server::Submission::*step)(),
            void (GenerateStream::*then)(const Status&));
  void OnEncoded(const Status& encoded);
  void OnCompiled(const Status& compiled);
  Status Submit();
  // Writes what there is to say.
  void Pump();
  // Takes what one choice has said; false: none has said anything.
  bool TakeOne();
  void AddEvents(int choice);
  v1::GenerateEvent& AddEvent();
  // The client is gone: what the generation still says is dropped.
  void Leave(CancelCause cause);
  void Refuse(const Status& refusal);
  void FinishNow(const Status& status);
  // Cuts off a client that takes nothing for server.write_timeout_s.
  void WatchWrites();
  void CheckWrite(std::chrono::seconds allowed);

  const server::Strand strand_;
  server::Service& service_;
  ::grpc::CallbackServerContext& context_;
  v1::GenerateRequest message_;
  Call call_;
  std::shared_ptr<GenerateStream> self_;  // until OnDone
  // On the strand.
  std::shared_ptr<server::Submission> submission_;  // until it is submitted; encoded by a worker
  std::shared_ptr<server::Generation> generation_;
  std::size_t work_bytes_ = 0;  // that encoding may take
  DeltaOptions delta_options_;
  bool progress_ = false, speculates_ = false;
  int next_choice_ = 0;
  TokenChannel::Update update_;
  std::deque<v1::GenerateEvent> events_;  // not written yet
  v1::GenerateEvent in_flight_;
  std::uint64_t sequence_ = 0;
  bool writing_ = false, gone_ = false;
  std::atomic<bool> finished_{false};  // read by a worker, too
  std::optional<Status> end_;          // of the stream, once what is queued is written
  Clock::time_point write_began_;
  boost::asio::steady_timer timer_;
};

}  // namespace thermocline::rpc
