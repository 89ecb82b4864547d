// Fields that clients send and that change no answer here. All others that a request does not have
// are refused by name. docs/http-api.md has this list, and a test holds it.
#pragma once

namespace thermocline::openai {

struct IgnoredField {
  const char* name;
  const char* why;
};

inline constexpr IgnoredField kIgnoredFields[] = {
    {"user", "the client's name for its user"},
    {"safety_identifier", "the same"},
    {"metadata", "kept by OpenAI with the answer; nothing is kept here"},
    {"store", "the same"},
    {"service_tier", "there is one"},
    {"prompt_cache_key", "prompts are found by their tokens"},
    {"prompt_cache_retention", "as long as there is memory"},
    {"cache_prompt", "prompts are cached wherever that is possible"},
    {"id_slot", "any place is as good"},
    {"timings_per_token", "figures come at the end"},
    {"verbosity", "a hint that only OpenAI's models know"},
};

}  // namespace thermocline::openai
