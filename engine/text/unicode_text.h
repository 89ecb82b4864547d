// Properties of characters and normal forms of text, by ICU.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/model/vocabulary.h"

namespace thermocline::text {

// Unicode's White_Space.
bool IsSpace(char32_t c);
// A character of regular expressions' \w: letters, marks, digits and connectors.
bool IsWord(char32_t c);

// Start of the character before `at`. Requires: at > 0.
std::size_t CharacterBefore(std::string_view text, std::size_t at);

// `text` after each of `forms` in turn. Requires: well-formed UTF-8.
std::string Normalized(std::string_view text, const std::vector<model::Normalization>& forms);

// Bytes of white space at the beginning and at the end of `text`.
std::size_t SpaceBytesAtBegin(std::string_view text);
std::size_t SpaceBytesAtEnd(std::string_view text);

}  // namespace thermocline::text
