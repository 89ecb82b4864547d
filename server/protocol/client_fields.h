// Fields that known clients send and no route reads, with the values that are harmless. One table
// for every protocol. docs/http-api.md repeats it, and a test compares the two.
#pragma once

#include <string_view>

namespace thermocline::protocol {

struct ClientField {
  std::string_view name;
  // A JSON list of the values that change no answer; kAnyValue: every value.
  std::string_view values;
  std::string_view why;  // Why any value is harmless, or why other values are rejected.
};

inline constexpr std::string_view kAnyValue = "";

inline constexpr ClientField kClientFields[] = {
    {"user", kAnyValue, "the client's name for its user"},
    {"safety_identifier", kAnyValue, "the client's name for its user"},
    {"client_metadata", kAnyValue, "Codex's names for its session and installation"},
    {"metadata", kAnyValue, "OpenAI keeps it with the answer; nothing is kept here"},
    {"store", kAnyValue, "OpenAI keeps the answer; nothing is kept here"},
    {"service_tier", kAnyValue, "there is one tier"},
    {"prompt_cache_key", kAnyValue, "the prefix cache finds prompts by their tokens"},
    {"prompt_cache_retention", kAnyValue, "the prefix cache keeps what memory allows"},
    {"prompt_cache_options", kAnyValue, "the prefix cache finds prompts by their tokens"},
    {"cache_control", kAnyValue, "the prefix cache finds prompts by their tokens"},
    {"cache_prompt", kAnyValue, "the prefix cache is always used"},
    {"context_management", kAnyValue, "Anthropic edits the history; here it is read as it is sent"},
    {"betas", kAnyValue, "Anthropic's names of trial features"},
    {"anthropic_version", kAnyValue, "there is one version"},
    {"inference_geo", kAnyValue, "there is one machine"},
    {"prediction", kAnyValue, "a guess of the answer, which could only make it faster"},
    {"id_slot", kAnyValue, "every sequence is as good"},
    {"n_cache_reuse", kAnyValue, "the prefix cache finds prompts by their tokens"},
    {"timings_per_token", kAnyValue, "timings come with the end"},
    {"verbosity", kAnyValue, "a hint that only OpenAI's models know"},
    {"n_keep", kAnyValue, "a prompt beyond the context is refused, not cut"},
    {"num_keep", kAnyValue, "a prompt beyond the context is refused, not cut"},
    {"min_keep", kAnyValue, "samplers always keep one token"},
    {"mirostat_tau", kAnyValue, "only Mirostat reads it"},
    {"mirostat_eta", kAnyValue, "only Mirostat reads it"},
    {"dynatemp_exponent", kAnyValue, "only a dynamic temperature reads it"},
    {"xtc_threshold", kAnyValue, "only XTC reads it"},
    {"penalize_newline", kAnyValue, "Ollama does not read it any more"},
    {"guided_decoding_backend", kAnyValue, "there is one grammar engine"},
    {"num_gpu", kAnyValue, "the model is loaded already"},
    {"num_thread", kAnyValue, "the model is loaded already"},
    {"num_batch", kAnyValue, "the model is loaded already"},
    {"main_gpu", kAnyValue, "the model is loaded already"},
    {"use_mmap", kAnyValue, "the model is loaded already"},
    {"use_mlock", kAnyValue, "the model is loaded already"},
    {"numa", kAnyValue, "the model is loaded already"},
    {"low_vram", kAnyValue, "the model is loaded already"},
    {"f16_kv", kAnyValue, "the model is loaded already"},
    {"vocab_only", kAnyValue, "the model is loaded already"},
    {"mirostat", "[0]", "there is no Mirostat sampler"},
    {"dynatemp_range", "[0]", "there is no dynamic temperature"},
    {"xtc_probability", "[0]", "there is no XTC sampler"},
    {"top_n_sigma", "[-1, 0]", "there is no top-n-sigma sampler"},
    {"tfs_z", "[1]", "there is no tail-free sampler"},
    {"top_a", "[0]", "there is no top-a sampler"},
    {"smoothing_factor", "[0]", "there is no quadratic sampler"},
    {"length_penalty", "[0, 1]", "there is no beam search"},
    {"early_stopping", "[false]", "there is no beam search"},
    {"use_beam_search", "[false]", "there is no beam search"},
    {"n_discard", "[0]", "a context that is full ends the answer"},
    {"samplers",
     "[[], [\"penalties\", \"dry\", \"top_n_sigma\", \"top_k\", \"typ_p\", \"top_p\", \"min_p\", "
     "\"xtc\", \"temperature\"], [\"dry\", \"top_k\", \"typ_p\", \"top_p\", \"min_p\", \"xtc\", "
     "\"temperature\"], [\"top_k\", \"top_p\", \"infill\"], \"dkypmxt\", \"edskypmxt\"]",
     "the samplers have one order"},
    {"lora", "[[]]", "adapters are chosen by the model's name on this route"},
    {"image_data", "[[]]", "images are not read"},
    {"post_sampling_probs", "[false]", "probabilities are those before sampling"},
    {"modalities", "[[\"text\"], []]", "answers are text"},
    {"audio", "[]", "answers are text"},
    {"echo", "[false]", "only /v1/completions repeats its prompt"},
    {"best_of", "[1]", "every choice is given"},
    {"skip_special_tokens", "[true]", "control tokens are not shown"},
    {"spaces_between_special_tokens", "[true]", "control tokens are not shown"},
    {"include_stop_str_in_output", "[false]", "stop strings are not shown"},
    {"return_token_ids", "[false]", "answers are text"},
    {"return_tokens_as_token_ids", "[false]", "answers are text"},
    {"prompt_logprobs", "[0, false]", "only 'echo' with 'logprobs' on /v1/completions has them"},
    {"add_special_tokens", "[false]", "the chat template writes its control tokens"},
    {"include_reasoning", "[true]", "reasoning is always shown"},
    {"separate_reasoning", "[true]", "reasoning has a field of its own"},
    {"reasoning_format", "[\"auto\", \"deepseek\", \"deepseek-legacy\"]",
     "reasoning has a field of its own"},
    {"parse_tool_calls", "[true]", "calls are always parsed"},
    {"truncate_prompt_tokens", "[-1]", "a prompt beyond the context is refused, not cut"},
    {"functions", "[[]]", "the successor is 'tools'"},
    {"function_call", "[\"auto\", \"none\"]", "the successor is 'tool_choice'"},
    {"chat_template", "[]", "the model's own template is used"},
    {"web_search_options", "[]", "nothing is searched for"},
    {"mcp_servers", "[[]]", "tools run with the client"},
    {"container", "[]", "tools run with the client"},
    {"speed", "[\"standard\"]", "there is one speed"},
};

}  // namespace thermocline::protocol
