// CHECK: a broken invariant of the program ends the process with file, line and values. Not for bad
// input.
#pragma once

#include <string>

#include "engine/base/strings.h"

namespace thermocline::base {
[[noreturn]] void CheckFailed(const char* file, int line, const char* what,
                              const std::string& values);
}

#define CHECK(condition)                                                                    \
  do {                                                                                      \
    if (!(condition)) ::thermocline::base::CheckFailed(__FILE__, __LINE__, #condition, ""); \
  } while (false)

#define CHECK_OP(a, op, b)                                                                       \
  do {                                                                                           \
    if (!((a)op(b))) {                                                                           \
      ::thermocline::base::CheckFailed(__FILE__, __LINE__, #a " " #op " " #b,                    \
                                       ::thermocline::base::StrCat("(", (a), " vs ", (b), ")")); \
    }                                                                                            \
  } while (false)
#define CHECK_EQ(a, b) CHECK_OP(a, ==, b)
#define CHECK_LE(a, b) CHECK_OP(a, <=, b)
#define CHECK_LT(a, b) CHECK_OP(a, <, b)
