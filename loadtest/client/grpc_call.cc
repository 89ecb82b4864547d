#include "loadtest/client/grpc_call.h"

#include <boost/asio/post.hpp>

namespace thermocline::loadtest {

namespace asio = boost::asio;

GrpcCall::GrpcCall(asio::io_context& io, Setup setup, const Request& request, double t_scheduled,
                   ChunkCounter& chunk_counter, Client::Done done)
    : io_(io),
      setup_(std::move(setup)),
      keep_text_(request.keep_text),
      malformed_(request.fault != Fault::kNone),
      leave_after_(request.leave_after_chunks),
      read_pause_s_(request.read_pause_s),
      chunk_counter_(chunk_counter),
      done_(std::move(done)),
      pause_(io) {
  answer_.id = request.id;
  answer_.conversation = request.conversation;
  answer_.turn = request.turn;
  answer_.kind = request.kind;
  answer_.t_scheduled = t_scheduled;
  answer_.t_sent = setup_.clock.Now();
}

void GrpcCall::Start(v1::Inference::Stub& stub) {
  self_ = shared_from_this();
  if (!setup_.api_key.empty()) context_.AddMetadata("authorization", "Bearer " + setup_.api_key);
  context_.set_deadline(std::chrono::system_clock::now() +
                        std::chrono::duration_cast<std::chrono::system_clock::duration>(
                            std::chrono::duration<double>(setup_.timeout_s)));
  stub.async()->Generate(&context_, &setup_.message, this);
  StartRead(&event_);
  StartCall();
}

void GrpcCall::End(Outcome outcome) {
  int expected = kNotEnded;
  ended_as_.compare_exchange_strong(expected, static_cast<int>(outcome));
  context_.TryCancel();
  asio::post(io_, [self = shared_from_this()] { self->pause_.cancel(); });
}

void GrpcCall::OnReadInitialMetadataDone(bool ok) {
  if (!ok) return;
  answer_.t_header = setup_.clock.Now();
  // The server has the request now, so the client leaves while it is queued or in prefill.
  if (leave_after_ == 0) End(Outcome::kCancelled);
}

void GrpcCall::OnReadDone(bool ok) {
  if (!ok) return;
  OnEvent(setup_.clock.Now());
  if (leave_after_.has_value() && answer_.chunks >= *leave_after_) End(Outcome::kCancelled);
  read_pause_s_ > 0 ? ReadAfterPause() : StartRead(&event_);
}

void GrpcCall::OnEvent(double now) {
  answer_.t_last = now;
  if (!answer_.t_first_byte.has_value()) answer_.t_first_byte = now;
  if (event_.has_finished()) OnFinished(event_.finished());
  if (!event_.has_delta() || event_.delta().text().empty()) return;
  ++answer_.chunks;
  ++chunk_counter_.chunks;
  if (!answer_.t_first_content.has_value()) answer_.t_first_content = now;
  if (answer_.t_chunks.size() < kChunkTimesMax) answer_.t_chunks.push_back(now);
  if (keep_text_ && answer_.text.size() < kTextBytesMax) answer_.text += event_.delta().text();
}

void GrpcCall::OnFinished(const v1::Finished& finished) {
  finished_ = true;
  const bool length = finished.finish_reason() == v1::FINISH_REASON_LENGTH;
  answer_.finish_reason = length ? "length" : "stop";
  answer_.prompt_tokens = finished.usage().prompt_tokens();
  answer_.output_tokens = finished.usage().completion_tokens();
  answer_.cached_tokens = finished.usage().cached_tokens();
}

void GrpcCall::ReadAfterPause() {
  AddHold();  // the next read starts outside of a reaction
  asio::post(io_, [self = self_] {
    const bool ended = self->ended_as_ != kNotEnded;
    self->pause_.expires_after(ToDuration(ended ? 0 : self->read_pause_s_));
    self->pause_.async_wait([self](boost::system::error_code) {
      self->StartRead(&self->event_);
      self->RemoveHold();
    });
  });
}

void GrpcCall::OnDone(const grpc::Status& status) {
  if (!status.ok()) answer_.t_last = setup_.clock.Now();
  // The header precedes the first event, though its reaction may have run later.
  if (answer_.t_header.has_value() && answer_.t_first_byte.has_value())
    answer_.t_header = std::min(*answer_.t_header, *answer_.t_first_byte);
  SetOutcome(status);
  asio::post(io_, [self = std::move(self_)] { self->done_(std::move(self->answer_)); });
}

void GrpcCall::SetOutcome(const grpc::Status& status) {
  const int ended_as = ended_as_;
  const grpc::StatusCode code = status.error_code();
  answer_.status = code;
  if (status.ok()) {
    answer_.outcome = finished_ && !malformed_ ? Outcome::kOk : Outcome::kError;
    if (malformed_) answer_.error = "a malformed request was answered";
    if (!finished_) answer_.error = "the stream ended without its last event";
    return;
  }
  answer_.error = base::ReplaceInvalidUtf8(base::Shorten(
      StrCat("gRPC ", static_cast<int>(code), ": ", status.error_message()), kErrorBytesMax));
  if (ended_as != kNotEnded) {
    answer_.outcome = static_cast<Outcome>(ended_as);
    if (answer_.outcome == Outcome::kCancelled) answer_.error.clear();
  } else if (malformed_ && code == grpc::INVALID_ARGUMENT) {
    answer_.outcome = Outcome::kRefused;
    answer_.error.clear();
  } else if (code == grpc::DEADLINE_EXCEEDED) {
    answer_.outcome = Outcome::kTimeout;
  } else if (code == grpc::RESOURCE_EXHAUSTED) {
    answer_.outcome = Outcome::kRateLimited;
  } else if (code == grpc::UNAVAILABLE && !status.error_details().empty()) {
    // The server says so; without details the server is unreachable.
    answer_.outcome = Outcome::kUnavailable;
  }
}

}  // namespace thermocline::loadtest
