// The helper functions that generated text may call: only those that a text names are put before it.
//
// A piece is one C function (or macro) whose name starts with "s1_"; a text that holds the name needs the piece, and so
// does a piece whose body holds it. All functions are inlined, but for the slow paths of masked access.
#ifndef STEPONE_COMPILER_CODEGEN_PRELUDE_H_
#define STEPONE_COMPILER_CODEGEN_PRELUDE_H_

#include <string>
#include <string_view>
#include <vector>

namespace stepone::codegen {

struct Piece {
  std::string name;
  std::string text;
};

// Type definitions and the pieces that `body` needs, for vectors of `lanes` elements (4, 8 or 16), in dependency order.
std::string PreludeFor(std::string_view body, int lanes);

// Parts of the list, each ordered so that a piece stands after those it needs.
std::vector<Piece> MemoryPieces(int lanes);     // loads, stores, gathers of each dtype
std::vector<Piece> ReductionPieces(int lanes);  // steps and horizontal ends of reductions
std::vector<Piece> IntegerAndFloatPieces();     // division, remainder, rounding to 16 bits, random numbers
std::vector<Piece> FloatMathPieces();           // exp, log, ... on vf (vector_math.cc)
std::vector<Piece> DoubleMathPieces();          // the same on vd (vector_math_f64.cc)

}  // namespace stepone::codegen

#endif  // STEPONE_COMPILER_CODEGEN_PRELUDE_H_
