// Histograms of the model's steps: their times and their numbers of tokens.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace thermocline {

// Upper bounds of the buckets, inclusive, ascending; one more bucket lies above the last. They are
// fixed, not configurable: the decode thread counts into arrays of this size.
inline constexpr std::array kStepSecondsBorders = {
    .0001, .0002, .0005, .001, .002, .003, .005, .0075, .01, .015, .02, .03, .04,
    .05,   .075,  .1,    .15,  .2,   .3,   .5,   .75,   1.,  2.5,  5.,  10.};
// Up to the largest engine.prefill_chunk.
inline constexpr std::array kStepTokensBorders = {1.,   2.,   4.,   8.,    16.,   32.,  64.,
                                                  128., 256., 512., 1024., 2048., 4096.};

template <std::size_t kBorders>
struct BucketCounts {
  std::array<std::int64_t, kBorders + 1> counts = {};  // by bucket, not cumulative
  double sum = 0;                                      // of the values counted
};

// Since the start.
struct StepStats {
  BucketCounts<kStepSecondsBorders.size()> prefill, decode, verify;  // seconds
  BucketCounts<kStepTokensBorders.size()> tokens;  // per step: a chunk of a prompt, one token, or a
                                                   // draft and the token before it
  // Steps shared by requests, and their tokens: of answers, and of prompts.
  std::int64_t shared_steps = 0, shared_decode_tokens = 0, shared_prefill_tokens = 0;
  double last_end_s = 0;  // Unix time of the last step's end; 0 = none yet
};

}  // namespace thermocline
