// The control tokens of text in the middle (fill-in-the-middle): a model is given what stands
// before and behind a gap and writes what is in it.
#pragma once

namespace thermocline::model {

struct Vocabulary;

// Token ids; -1 = the vocabulary has none.
struct InfillTokens {
  int prefix = -1, suffix = -1, middle = -1;  // in front of the text before, behind, in the gap
  int pad = -1;
  int repository = -1, separator = -1;  // in front of a repository's and a file's name

  // True if the model knows gaps at all.
  bool known() const { return prefix >= 0 && suffix >= 0 && middle >= 0; }
};

// By the names that families give them; of several the first of the vocabulary.
InfillTokens FindInfillTokens(const Vocabulary& vocabulary);

}  // namespace thermocline::model
