#include "compiler/codegen/prelude.h"

#include <array>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_replace.h"
#include "compiler/codegen/lanes.h"
#include "proto/str_cat.h"

namespace stepone::codegen {
namespace {

constexpr char kTypes[] =
    R"(#define S1 static inline __attribute__((always_inline))
#define S1_LANES(n) __attribute__((ext_vector_type(n)))
enum { W = @W };
typedef float vf S1_LANES(@W);
typedef double vd S1_LANES(@W);
typedef int vi S1_LANES(@W);
typedef unsigned vu S1_LANES(@W);
typedef long vl S1_LANES(@W);
typedef unsigned long vul S1_LANES(@W);
#define s1_as(x, type) ((type)(x))
#define s1_bits(x, t) ({ __auto_type s1_x = (x); t s1_y; __builtin_memcpy(&s1_y, &s1_x, sizeof s1_y); s1_y; })
#define s1_to __builtin_convertvector
#define s1_fma __builtin_elementwise_fma
)";

std::string Iota(int lanes) {
  std::string text = "0";
  for (int i = 1; i < lanes; ++i) text += StrCat(", ", i);
  return text;
}

std::vector<Piece> MaskPieces(int lanes) {
  return {
      {"s1_iota", StrCat("#define s1_iota ((vi){", Iota(lanes), "})\n")},
      {"s1_iotal", StrCat("#define s1_iotal ((vl){", Iota(lanes), "})\n")},
      {"s1_lanes", "S1 vi s1_lanes(int n) { return s1_iota < n; }\n"},
      {"s1_wide", "S1 vl s1_wide(vi m) { return s1_to(m, vl); }\n"},
      {"s1_any", "S1 int s1_any(vi m) { return __builtin_reduce_or(m) != 0; }\n"},
      {"s1_all", "S1 int s1_all(vi m) { return __builtin_reduce_and(m) != 0; }\n"},
  };
}

// Names in `text` that start with s1_.
std::set<std::string, std::less<>> HelperNames(std::string_view text) {
  std::set<std::string, std::less<>> names;
  for (size_t at = text.find("s1_"); at != std::string_view::npos; at = text.find("s1_", at)) {
    size_t end = at;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
    if (at == 0 || (!std::isalnum(static_cast<unsigned char>(text[at - 1])) && text[at - 1] != '_')) {
      names.emplace(text.substr(at, end - at));
    }
    at = end;
  }
  return names;
}

struct Library {
  std::vector<Piece> pieces;
  std::vector<std::set<std::string, std::less<>>> needs;  // of each piece, by name
};

Library MakeLibrary(int lanes) {
  Library library;
  for (auto part : {MaskPieces(lanes), MemoryPieces(lanes), ReductionPieces(lanes), IntegerAndFloatPieces(),
                    DoubleMathPieces(), FloatMathPieces()}) {
    for (Piece& piece : part) library.pieces.push_back(std::move(piece));
  }
  for (const Piece& piece : library.pieces) library.needs.push_back(HelperNames(piece.text));
  return library;
}

const Library& LibraryFor(int lanes) {
  static const Library* const kFour = new Library(MakeLibrary(4));
  static const Library* const kEight = new Library(MakeLibrary(8));
  static const Library* const kSixteen = new Library(MakeLibrary(16));
  return lanes == 4 ? *kFour : lanes == 8 ? *kEight : *kSixteen;
}

}  // namespace

std::string PreludeFor(std::string_view body, int lanes) {
  const Library& library = LibraryFor(lanes);
  std::set<std::string, std::less<>> wanted = HelperNames(body);
  std::vector<bool> taken(library.pieces.size());
  // Needs point backwards, so one pass from the end finds them all.
  for (size_t i = library.pieces.size(); i-- > 0;) {
    if (!wanted.contains(library.pieces[i].name)) continue;
    taken[i] = true;
    wanted.insert(library.needs[i].begin(), library.needs[i].end());
  }
  std::string text = absl::StrReplaceAll(kTypes, {{"@W", StrCat(lanes)}});
  for (size_t i = 0; i < taken.size(); ++i) {
    if (taken[i]) text += library.pieces[i].text;
  }
  return text;
}

}  // namespace stepone::codegen
