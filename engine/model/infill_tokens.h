// The control tokens of fill-in-the-middle: given the text before and after a gap, a model writes
// the text in the gap.
#pragma once

namespace thermocline::model {

struct Vocabulary;

// Token ids; -1 = the vocabulary has none.
struct InfillTokens {
  int prefix = -1, suffix = -1, middle = -1;  // precede the text before, after, and in the gap
  int pad = -1;
  int repository = -1, separator = -1;  // precede a repository's and a file's name

  // True if the model supports fill-in-the-middle.
  bool known() const { return prefix >= 0 && suffix >= 0 && middle >= 0; }
};

// Looks the tokens up by the names that families use; of several the first in the vocabulary.
InfillTokens FindInfillTokens(const Vocabulary& vocabulary);

}  // namespace thermocline::model
