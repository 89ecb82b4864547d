// Finds the model that a request names, before its route reads it.
#pragma once

#include <string>
#include <string_view>

namespace thermocline::server {

// Decodes percent escapes ("%2F" is "/") and keeps malformed ones.
std::string UrlDecoded(std::string_view text);

// The value of the query's parameter "model" ("/v1/status?model=chat"), as llama-server's router
// reads it; "" if there is none.
std::string ModelOfQuery(std::string_view target);

// The value of the member "model" of the object `json`, or with `or_name` and without one, of
// "name"; "" if it is no text, or there is none. Malformed JSON is accepted.
std::string ModelOf(std::string_view json, bool or_name);

// True if the object's member "stream" is true.
bool AsksForStream(std::string_view json);

// ModelOf, where Ollama's routes take "name", too, or without one ModelOfQuery.
std::string RequestedModel(std::string_view body, std::string_view target);

}  // namespace thermocline::server
