// One Generate call: reads its events into an Answer.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "loadtest/client/client.h"
#include "thermocline/v1/inference.grpc.pb.h"

namespace thermocline::loadtest {

namespace v1 = thermocline::v1;

// gRPC's threads call the reactions. The header's may run concurrently with the first event's, and
// touches only the time of the header; the others run one after the other. The answer is passed to
// the I/O thread at the end. Owns itself until then.
class GrpcCall final : public grpc::ClientReadReactor<v1::GenerateEvent>,
                       public std::enable_shared_from_this<GrpcCall> {
 public:
  struct Setup {
    v1::GenerateRequest message;
    std::string api_key;
    double timeout_s;
    RunClock clock;
  };
  GrpcCall(boost::asio::io_context& io, Setup setup, const Request& request, double t_scheduled,
           ChunkCounter& chunk_counter, Client::Done done);

  // Borrows the stub until the end.
  void Start(v1::Inference::Stub& stub);
  // May be called on any thread. The answer's outcome will be `outcome`.
  void End(Outcome outcome);

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void OnEvent(double now);
  void OnFinished(const v1::Finished& finished);
  void ReadAfterPause();
  void SetOutcome(const grpc::Status& status);

  boost::asio::io_context& io_;
  const Setup setup_;
  const bool keep_text_, malformed_;
  const std::optional<int> leave_after_;
  const double read_pause_s_;
  ChunkCounter& chunk_counter_;
  const Client::Done done_;
  boost::asio::steady_timer pause_;  // I/O thread only
  grpc::ClientContext context_;
  v1::GenerateEvent event_;
  Answer answer_;
  bool finished_ = false;
  static constexpr int kNotEnded = -1;
  std::atomic<int> ended_as_ = kNotEnded;  // an Outcome
  std::shared_ptr<GrpcCall> self_;         // from Start to OnDone
};

}  // namespace thermocline::loadtest
