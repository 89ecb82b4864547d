#include "server/core/refusal_table.h"

#include <gtest/gtest.h>

#include <set>

#include "server/protocol/error.h"

namespace thermocline::server {
namespace {

TEST(RefusalTable, EveryReasonHasARow) {
  ASSERT_EQ(RefusalTable().size(), static_cast<std::size_t>(base::kNumReasons));
  for (int i = 0; i < base::kNumReasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    EXPECT_EQ(RefusalTable()[static_cast<std::size_t>(i)].reason, reason);
    EXPECT_EQ(RowOf(base::Internal("x").WithReason(reason)).reason, reason);
  }
}

// The labels of requests_rejected_total and requests_failed_total in docs/metrics.md.
TEST(RefusalTable, LabelsAreThoseOfTheMetrics) {
  const std::set<std::string> rejected = {"queue_full",     "prefill_budget", "grammar_memory",
                                          "request_memory", "connections",    "too_long",
                                          "bad_request",    "auth",           "deadline",
                                          "loading",        "draining"};
  const std::set<std::string> failed = {"device", "data", "other"};
  for (const RefusalRow& row : RefusalTable()) {
    EXPECT_TRUE(row.rejected == nullptr || rejected.contains(row.rejected)) << row.grpc_reason;
    EXPECT_TRUE(failed.contains(row.failed)) << row.grpc_reason;
  }
}

// An internal error's message goes only to the log, and is no rejection; retries are for 429 and
// 503.
TEST(RefusalTable, RowsAgreeWithThemselves) {
  for (const RefusalRow& row : RefusalTable()) {
    EXPECT_EQ(row.retry_after, row.http_status == 429 || row.http_status == 503) << row.grpc_reason;
    EXPECT_TRUE(row.http_status != 500 || row.rejected == nullptr) << row.grpc_reason;
    EXPECT_TRUE(row.grpc_code != StatusCode::kInternal || !row.public_message) << row.grpc_reason;
    const bool client = row.http_status >= 400 && row.http_status < 429;
    const bool cancelled = row.grpc_code == StatusCode::kCancelled;
    EXPECT_EQ(std::string(row.openai_type) == "invalid_request_error", client && !cancelled)
        << row.grpc_reason;
  }
}

struct Mapping {
  Status status;
  int http_status;
  const char* openai_code;
  StatusCode grpc_code;
  const char* grpc_reason;
  const char* rejected;
};

TEST(RefusalTable, WhatClientsAreToldApartBy) {
  using C = StatusCode;
  const Mapping mappings[] = {
      {base::InvalidArgument(""), 400, "", C::kInvalidArgument, "INVALID_FIELD", "bad_request"},
      {base::Unimplemented(""), 400, "unsupported_value", C::kUnimplemented, "UNIMPLEMENTED",
       "bad_request"},
      {base::OutOfRange("").WithReason(Reason::kContextLength), 400, "context_length_exceeded",
       C::kInvalidArgument, "CONTEXT_LENGTH_EXCEEDED", "too_long"},
      {base::FailedPrecondition(""), 400, "failed_precondition", C::kFailedPrecondition,
       "FAILED_PRECONDITION", "bad_request"},
      {base::NotFound("").WithReason(Reason::kModelNotFound), 404, "model_not_found", C::kNotFound,
       "MODEL_NOT_FOUND", "bad_request"},
      {base::Unauthenticated(""), 401, "invalid_api_key", C::kUnauthenticated, "INVALID_API_KEY",
       "auth"},
      {base::ResourceExhausted("").WithReason(Reason::kQueueFull), 429, "queue_full",
       C::kResourceExhausted, "QUEUE_FULL", "queue_full"},
      {base::ResourceExhausted("").WithReason(Reason::kPrefillBudget), 429, "queue_full",
       C::kResourceExhausted, "QUEUE_FULL", "prefill_budget"},
      {base::ResourceExhausted("").WithReason(Reason::kRequestMemory), 429, "request_memory",
       C::kResourceExhausted, "REQUEST_MEMORY", "request_memory"},
      {base::ResourceExhausted("").WithReason(Reason::kConnections), 429, "too_many_connections",
       C::kResourceExhausted, "TOO_MANY_CONNECTIONS", "connections"},
      {base::InvalidArgument("").WithReason(Reason::kTooLarge), 413, "body_too_large",
       C::kResourceExhausted, "MESSAGE_TOO_LARGE", "bad_request"},
      {base::DeadlineExceeded(""), 504, "timeout", C::kDeadlineExceeded, "DEADLINE_EXCEEDED",
       "deadline"},
      {base::Unavailable("").WithReason(Reason::kLoading), 503, "unavailable", C::kUnavailable,
       "LOADING", "loading"},
      {base::Unavailable("").WithReason(Reason::kDraining), 503, "unavailable", C::kUnavailable,
       "DRAINING", "draining"},
  };
  for (const Mapping& m : mappings) {
    const RefusalRow& row = RowOf(m.status);
    EXPECT_EQ(row.http_status, m.http_status);
    EXPECT_STREQ(row.openai_code, m.openai_code);
    EXPECT_EQ(row.grpc_code, m.grpc_code);
    EXPECT_STREQ(row.grpc_reason, m.grpc_reason);
    EXPECT_STREQ(row.rejected, m.rejected);
  }
}

TEST(RefusalTable, TheFieldAndTheNumbersComeFromTheStatusNotFromItsWords) {
  const protocol::ApiError error = protocol::FromStatus(base::OutOfRange("logit_bias: any words")
                                                            .WithReason(Reason::kContextLength)
                                                            .WithField("messages")
                                                            .WithNumber("n_prompt_tokens", 600)
                                                            .WithNumber("n_ctx", 512));
  EXPECT_EQ(error.param, "messages");
  ASSERT_EQ(error.details.size(), 2u);
  EXPECT_EQ(error.details[0].first, "n_prompt_tokens");
  EXPECT_EQ(error.details[0].second.as_int(), 600);
  EXPECT_EQ(protocol::FromStatus(base::InvalidArgument("x").WithField("spec.mode")).param,
            "x_thermocline.speculation");
}

TEST(RefusalTable, AFaultOfOursIsNotCountedAsRejected) {
  Metrics metrics("thermocline_");
  CountRejection(metrics, base::Internal("x"));
  CountRejection(metrics, base::DataLoss("x"));
  CountRejection(metrics, base::DeadlineExceeded("x"));
  const std::string page = metrics.Expose(ServiceState::kReady, nullptr, "m");
  EXPECT_NE(page.find("requests_rejected_total{reason=\"deadline\"} 1"), std::string::npos) << page;
  EXPECT_EQ(page.find("requests_rejected_total{reason=\"bad_request\"} 1"), std::string::npos);
}

}  // namespace
}  // namespace thermocline::server
