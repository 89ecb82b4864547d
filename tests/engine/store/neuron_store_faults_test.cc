// NeuronStore on a device that fails, returns wrong data or is late: a step either fails or returns
// the right result.
#include "tests/engine/store/neuron_store_fixture.h"

namespace thermocline::store {
namespace {

TEST_F(NeuronStoreTest, AnErrorOnceIsTriedAgain) {
  const Opened bundled = Open({.slots = 0}), by_row = Open({.queue = {.bundled = false}});
  for (const auto& [kind, read_by_row] : {std::pair{Fault::Kind::kError, false},
                                          {Fault::Kind::kShort, false},
                                          {Fault::Kind::kError, true},
                                          {Fault::Kind::kShort, true}}) {
    const Opened& o = read_by_row ? by_row : bundled;
    const FlashCounters before = o.store->counters();
    o.device->Inject({.kind = kind, .count = 1, .bytes = read_by_row ? 0U : 512U});
    o.store->Request(0, std::vector<int>{3, 17, 40}, {});
    const Status status = o.store->Await();
    ASSERT_TRUE(status.ok()) << status.message();
    for (const int neuron : {3, 17, 40}) ExpectNeuron(*o.store, 0, neuron, false);
    o.store->EndLayer(0);
    o.store->EndStep(1);
    EXPECT_EQ(o.store->counters().retries - before.retries, 1);
    EXPECT_EQ(o.store->counters().io_errors - before.io_errors, 1);
  }
}

// The step fails; the next one starts anew, and works once the device does.
TEST_F(NeuronStoreTest, ErrorsForGoodNameTheLayerAndPass) {
  struct Case {
    Fault::Kind kind;
    StatusCode code;
    const char* words;
    bool bundled = true;
  };
  for (const Case& c :
       {Case{Fault::Kind::kError, StatusCode::kUnavailable, "Input/output error", false},
        Case{Fault::Kind::kError, StatusCode::kUnavailable, "Input/output error"},
        Case{Fault::Kind::kShort, StatusCode::kDataLoss, "truncated"},
        Case{Fault::Kind::kFlip, StatusCode::kDataLoss, "neuron 17: the bundle's CRC32C"}}) {
    const Opened o = Open({.queue = {.bundled = c.bundled}, .slots = 9});
    const std::uint64_t byte = ByteOf(1, 17);
    o.device->Inject({.kind = c.kind, .begin = byte, .end = byte + 1});
    for (int again = 0; again < 2; ++again) {
      o.store->Request(1, std::vector<int>{3, 17, 40}, {});
      const Status status = o.store->Await();
      EXPECT_EQ(status.code(), c.code) << status.message();
      for (const std::string& words : {path_, std::string("layer 1, "), std::string(c.words)})
        EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
      o.store->Abandon();
      EXPECT_LE(Cached(*o.store), 9);
    }
    o.device->Clear();
    std::mt19937 random(1);
    for (int step = 0; step < 20; ++step) {
      RandomStep(*this, *o.store, random, 2, [&](int layer, const auto& needed) {
        for (const int neuron : needed) ExpectNeuron(*o.store, layer, neuron, false);
      });
    }
    EXPECT_GT(o.store->counters().io_errors + o.store->counters().crc_errors, 0);
  }
}

TEST_F(NeuronStoreTest, AFlippedBitIsReadOnceMore) {
  const Opened o = Open({.slots = 0, .stages = 1});
  const std::uint64_t byte = ByteOf(2, 30);
  o.device->Inject({.kind = Fault::Kind::kFlip, .begin = byte, .end = byte + 1, .count = 1});
  o.store->RequestAll(2);
  const Status status = o.store->Await();
  ASSERT_TRUE(status.ok()) << status.message();
  for (int neuron = 0; neuron < kNeurons; ++neuron) ExpectNeuron(*o.store, 2, neuron, false);
  EXPECT_EQ(o.store->counters().crc_errors, 1);
}

// An error that Poll finds during other work ends the step that needs the neuron.
TEST_F(NeuronStoreTest, AnErrorBetweenOtherWorkIsNotForgotten) {
  const Opened o = Open({.slots = 0});
  o.device->Inject({.kind = Fault::Kind::kError});
  o.store->Request(0, std::vector<int>{3}, {});
  while (o.store->counters().io_errors < 3) o.store->Poll();
  o.device->Clear();
  EXPECT_EQ(o.store->Await().code(), StatusCode::kUnavailable);
  o.store->Abandon();
  o.store->Request(0, std::vector<int>{3}, {});
  EXPECT_TRUE(o.store->Await().ok());
}

TEST_F(NeuronStoreTest, WhatComesAfterItWasGivenUpIsDropped) {
  const Opened o = Open({.slots = 5}, 4);
  o.device->Inject({.kind = Fault::Kind::kDelay, .count = 3});
  int waits = 0;
  o.store->SetOnWait([&] { return ++waits < 10; });
  o.store->Request(0, std::vector<int>{3, 17, 40}, {});
  o.store->ReadAllAhead(1);
  EXPECT_EQ(o.store->Await().code(), StatusCode::kCancelled);
  EXPECT_EQ(waits, 10);
  o.store->Abandon();
  EXPECT_LE(Cached(*o.store), 5);
  o.store->SetOnWait({});
  o.device->Release();  // arrives while others are read
  std::mt19937 random(2);
  for (int step = 0; step < 20; ++step) {
    RandomStep(*this, *o.store, random, 1, [&](int layer, const auto& needed) {
      for (const int neuron : needed) ExpectNeuron(*o.store, layer, neuron, false);
    });
    ASSERT_LE(Cached(*o.store), 5);
  }
}

}  // namespace
}  // namespace thermocline::store
