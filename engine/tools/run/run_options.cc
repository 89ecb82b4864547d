#include "engine/tools/run/run_options.h"

#include <utility>

namespace thermocline::tools {

std::vector<Setting> SettingsOf(RunOptions& options) {
  SamplingParams& s = options.sampling;
  return {
      {"max-tokens", IntValue{&options.max_tokens, 0},
       "Tokens to generate; 0 = to the end of the context", true},
      {"temperature", DoubleValue{&s.temperature}, "0 takes the most probable token", true},
      {"top-p", DoubleValue{&s.top_p}, "Sample from the smallest set with this probability", true},
      {"seed", UnsignedValue{&s.seed},
       "The same seed and prompt give the same text; a chat draws its own", true},
      {"top-k", IntValue{&s.top_k}, "Sample from the k most probable tokens; 0 = all"},
      {"min-p", DoubleValue{&s.min_p},
       "Leave out tokens below this share of the highest probability"},
      {"typical-p", DoubleValue{&s.typical_p},
       "Sample from the set nearest to the expected surprise, with this probability"},
      {"repetition-penalty", DoubleValue{&s.repetition_penalty},
       "Above 1 makes seen tokens less likely"},
      {"presence-penalty", DoubleValue{&s.presence_penalty},
       "Subtracted from the logits of generated tokens"},
      {"frequency-penalty", DoubleValue{&s.frequency_penalty}, "The same for each time they came"},
      {"dry-multiplier", DoubleValue{&s.dry_multiplier},
       "Above 0: tokens that go on with a repetition become less likely (DRY)"},
      {"dry-base", DoubleValue{&s.dry_base}, "How fast that grows with each repeated token"},
      {"dry-allowed-length", IntValue{&s.dry_allowed_length},
       "Repeated tokens from which it begins"},
      {"dry-penalty-last-n", IntValue{&s.dry_penalty_last_n},
       "Tokens looked back at; -1 = all, 0 = none"},
      {"min-tokens", IntValue{&s.min_tokens},
       "Tokens before which the model's end token does not come"},
      {"ignore-eos", BoolValue{&options.ignore_eos}, "Go on after the model's end token"},
  };
}

Request MakeRequest(const RunOptions& options, std::vector<int> prompt) {
  return {.prompt = std::move(prompt),
          .sampling = options.sampling,
          .max_tokens = options.max_tokens,
          .stop = {},
          .ffn_mode = options.mode,
          .ignore_eos = options.ignore_eos,
          .dry_breakers = options.dry_breakers};
}

}  // namespace thermocline::tools
