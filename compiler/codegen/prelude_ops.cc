// Reductions, integer and float division, rounding to 16 bits, random numbers.
#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "compiler/codegen/lanes.h"
#include "compiler/codegen/prelude.h"
#include "proto/str_cat.h"

namespace stepone::codegen {
namespace {

constexpr Reg kRegs[] = {Reg::kF32, Reg::kF64, Reg::kI32, Reg::kI64};

std::string ForReg(const char* text, Reg reg) {
  return absl::StrReplaceAll(text, {{"@k", Suffix(reg)},
                                    {"@V", VectorType(reg)},
                                    {"@s", ScalarType(reg)},
                                    {"@M", IsWide(reg) ? "vl" : "vi"},
                                    {"@m", IsWide(reg) ? "long" : "int"},
                                    {"@LAST", IsWide(reg) ? "0x7fffffffffffffff" : "0x7fffffff"}});
}

// Halves the vector until two lanes are left, by `step` of a and b.
std::string Horizontal(const char* name, const char* step, Reg reg, int lanes) {
  const auto apply = [&](const std::string& a, const std::string& b) {
    return absl::StrReplaceAll(step, {{"@a", a}, {"@b", b}});
  };
  std::string text = StrCat("S1 @s ", name, "_@k(@V x) {\n");
  std::string at = "x";
  for (int n = lanes; n > 2; n /= 2) {
    const std::string next = StrCat("h", n / 2);
    text += StrCat("  __auto_type ", next, " = ", apply(at + ".lo", at + ".hi"), ";\n");
    at = next;
  }
  text += StrCat("  return ", apply(at + ".x", at + ".y"), ";\n}\n");
  return ForReg(text.c_str(), reg);
}

// One step of argmax or argmin: `@op` is > or <.
constexpr char kArgStep[] =
    "S1 void s1_@name_@k(@V* best, @M* at, @V x, @M i, @M on) {\n"
    "  @M take = ((x @op *best) | ((x != x) & (*best == *best))) & on;\n"
    "  *best = take ? x : *best;\n  *at = take ? i : *at;\n}\n";
constexpr char kArgMerge[] =
    "S1 void s1_@name_merge_@k(@V* best, @M* at, @V x, @M i) {\n"
    "  @M tie = (x == *best) | ((x != x) & (*best != *best));\n"
    "  @M take = (x @op *best) | ((x != x) & (*best == *best)) | (tie & (i < *at));\n"
    "  *best = take ? x : *best;\n  *at = take ? i : *at;\n}\n";
// Nothing beat the neutral element: then all are equal to it, and the first one is the answer.
constexpr char kArgEnd[] =
    "S1 long s1_h@name_@k(@V best, @M at) {\n  @s b = best[0];\n  @m k = at[0];\n"
    "  for (int i = 1; i < W; ++i) {\n    @s x = best[i];\n    @m n = at[i];\n"
    "    int tie = (x == b) | ((x != x) & (b != b));\n"
    "    int take = (x @op b) | ((x != x) & (b == b)) | (tie & (n < k));\n"
    "    b = take ? x : b;\n    k = take ? n : k;\n  }\n  return k == @LAST ? 0 : k;\n}\n";
constexpr char kArgEndLanes[] = "S1 vl s1_v@name_@k(@M at) { return s1_to(at == @LAST ? 0 : at, vl); }\n";

constexpr std::pair<const char*, const char*> kPerReg[] = {
    {"s1_max_@k", "S1 @V s1_max_@k(@V a, @V b) { return ((a > b) | (a != a)) ? a : b; }\n"},
    {"s1_min_@k", "S1 @V s1_min_@k(@V a, @V b) { return ((a < b) | (a != a)) ? a : b; }\n"},
    {"s1_fmax_@k", "S1 @V s1_fmax_@k(@V a, @V b) { return ((a >= b) | (b != b)) ? a : b; }\n"},
    {"s1_fmin_@k", "S1 @V s1_fmin_@k(@V a, @V b) { return ((a <= b) | (b != b)) ? a : b; }\n"},
};

constexpr std::pair<const char*, const char*> kPerInteger[] = {
    // Quotient towards zero; the smallest number by -1 wraps; by 0 gives any number.
    {"s1_divide_@k", nullptr},
    {"s1_trunc_rem_@k", "S1 @V s1_trunc_rem_@k(@V a, @V b, @V q) { return a - q * b; }\n"},
    {"s1_floor_quot_@k",
     "S1 @V s1_floor_quot_@k(@V a, @V b, @V q) {\n  @V r = a - q * b;\n  return q + ((r != 0) & ((r ^ b) < 0));\n}\n"},
    {"s1_floor_rem_@k",
     "S1 @V s1_floor_rem_@k(@V a, @V b, @V q) {\n"
     "  @V r = a - q * b;\n  return r + ((r != 0) & ((r ^ b) < 0) & b);\n}\n"},
};
constexpr char kDivideInt[] =
    // Exact: a quotient of two int32 is at least 2^-31 away from the next integer, relative to it 2^-62 at worst only
    // where it is one.
    "S1 vi s1_divide_i(vi a, vi b) {\n  vi c = ((b == 0) | (b == -1)) ? 1 : b;\n"
    "  vi q = s1_to(s1_to(a, vd) / s1_to(c, vd), vi);\n  return b == -1 ? -a : q;\n}\n";
constexpr char kDivideLong[] =
    "S1 vl s1_divide_l(vl a, vl b) {\n  vl c = ((b == 0) | (b == -1)) ? 1 : b;\n"
    "  vl q = a / c;\n  return b == -1 ? -a : q;\n}\n";

constexpr std::pair<const char*, const char*> kPerFloat[] = {
    // One lane, by shifting and subtracting: exact for every quotient.
    {"s1_fmod_lane_@k",
     "static __attribute__((noinline)) @s s1_fmod_lane_@k(@s a, @s b) {\n"
     "  @s x = a < 0 ? -a : a, y = b < 0 ? -b : b;\n"
     "  if (!(y > 0) || !(x <= @BIG)) return (a * b) / (a * b);\n"
     "  if (!(y <= @BIG)) return y != y ? y : a;\n"
     "  while (x >= y) {\n    @s t = y;\n    for (@s u = t + t; u <= x; u = t + t) t = u;\n    x -= t;\n  }\n"
     "  return s1_bits((@m)(s1_bits(x, @m) | (s1_bits(a, @m) & @SIGN)), @s);\n}\n"},
    // C's fmod. While the quotient is small, truncation and one fused step give the remainder exactly, but for a
    // quotient that was rounded up to the next integer.
    {"s1_fmod_@k",
     "S1 @V s1_fmod_@k(@V a, @V b) {\n"
     "  @V x = __builtin_elementwise_abs(a), y = __builtin_elementwise_abs(b);\n"
     "  @V q = __builtin_elementwise_trunc(x / y);\n"
     "  @V r = __builtin_elementwise_fma(-q, y, x);\n  r = r < 0 ? r + y : r;\n"
     "  r = s1_as(s1_as(r, @M) | (s1_as(a, @M) & @SIGN), @V);\n"
     "  @M hard = ~((q < @HARD) & (y >= @TINY) & (y <= @BIG));\n"
     "  if (__builtin_reduce_or(hard)) for (int i = 0; i < W; ++i) if (hard[i]) r[i] = s1_fmod_lane_@k(a[i], b[i]);\n"
     "  return r;\n}\n"},
    {"s1_remainder_@k",
     "S1 @V s1_remainder_@k(@V a, @V b) {\n  @V r = s1_fmod_@k(a, b);\n"
     "  return ((r != 0) & ((b < 0) ^ (r < 0))) ? r + b : r;\n}\n"},
    {"s1_floor_divide_@k",
     "S1 @V s1_floor_divide_@k(@V a, @V b) {\n  @V r = s1_fmod_@k(a, b);\n  @V d = (a - r) / b;\n"
     "  d = ((r != 0) & ((b < 0) ^ (r < 0))) ? d - 1 : d;\n"
     "  @V f = __builtin_elementwise_floor(d);\n  f = (d - f > (@s)0.5) ? f + 1 : f;\n"
     "  @V z = s1_as(s1_as(a / b, @M) & @SIGN, @V);\n"
     "  return b == 0 ? a / b : (d != 0 ? f : z);\n}\n"},
    {"s1_sign_@k", "S1 @V s1_sign_@k(@V x) { return (@V)(x > 0 ? (@V)1 : (@V)0) - (x < 0 ? (@V)1 : (@V)0); }\n"},
};

constexpr char kRandom[] =
    "// Philox2x32-7; see codegen/random.h. p: positions.\n"
    "S1 unsigned long s1_random_key(long seed, long stream) {\n"
    "  unsigned long k = (unsigned long)seed + 0x9E3779B97F4A7C15u * ((unsigned long)stream + 1);\n"
    "  k = (k ^ (k >> 30)) * 0xBF58476D1CE4E5B9u;\n  k = (k ^ (k >> 27)) * 0x94D049BB133111EBu;\n"
    "  return k ^ (k >> 31);\n}\n";
constexpr char kRandomPair[] =
    "typedef struct { vul c0, c1; } s1_random_pair;\n"
    "S1 s1_random_pair s1_random_words(vul n, unsigned long key) {\n"
    "  vul c0 = n & 0xffffffff, c1 = (n >> 32) ^ (key >> 32);\n  unsigned k = (unsigned)key;\n"
    "#pragma clang loop unroll(full)\n"
    "  for (int i = 0; i < 7; ++i) {\n"
    "    vul p = (c0 & 0xffffffff) * 0xD256D193u;\n    c0 = (p >> 32) ^ (unsigned long)k ^ c1;\n    c1 = p;\n"
    "    k += 0x9E3779B9u;\n  }\n  return (s1_random_pair){c0, c1};\n}\n";
constexpr char kRandomUnit[] =
    "S1 vf s1_random_unit(vul c) { return s1_to((vi)(s1_to(c, vu) >> 8), vf) * 0x1p-24f; }\n";
constexpr char kRandomAny[] =
    "S1 vf s1_random(vl p, unsigned long key) {\n"
    "  vul u = (vul)p;\n  s1_random_pair w = s1_random_words(u >> 4 << 3 | (u & 7), key);\n"
    "  return s1_random_unit((p & 8) != 0 ? w.c1 : w.c0);\n}\n";

}  // namespace

std::vector<Piece> ReductionPieces(int lanes) {
  std::vector<Piece> pieces;
  for (Reg reg : kRegs) {
    for (const auto& [name, text] : kPerReg) pieces.push_back({ForReg(name, reg), ForReg(text, reg)});
    const std::string k = Suffix(reg);
    const char* max = "((@a > @b) | (@a != @a)) ? @a : @b";
    const char* min = "((@a < @b) | (@a != @a)) ? @a : @b";
    pieces.push_back({"s1_hsum_" + k, Horizontal("s1_hsum", "@a + @b", reg, lanes)});
    pieces.push_back({"s1_hprod_" + k, Horizontal("s1_hprod", "@a * @b", reg, lanes)});
    pieces.push_back({"s1_hmax_" + k, Horizontal("s1_hmax", max, reg, lanes)});
    pieces.push_back({"s1_hmin_" + k, Horizontal("s1_hmin", min, reg, lanes)});
    for (const auto& [name, op] : {std::pair("argmax", ">"), std::pair("argmin", "<")}) {
      const auto add = [&](std::string piece, const char* text) {
        pieces.push_back({piece, ForReg(absl::StrReplaceAll(text, {{"@name", name}, {"@op", op}}).c_str(), reg)});
      };
      add(StrCat("s1_", name, "_", k), kArgStep);
      add(StrCat("s1_", name, "_merge_", k), kArgMerge);
      add(StrCat("s1_h", name, "_", k), kArgEnd);
      add(StrCat("s1_v", name, "_", k), kArgEndLanes);
    }
  }
  return pieces;
}

std::vector<Piece> IntegerAndFloatPieces() {
  std::vector<Piece> pieces;
  for (Reg reg : {Reg::kI32, Reg::kI64}) {
    for (const auto& [name, text] : kPerInteger) {
      const char* body = text != nullptr ? text : reg == Reg::kI32 ? kDivideInt : kDivideLong;
      pieces.push_back({ForReg(name, reg), ForReg(body, reg)});
    }
  }
  for (Reg reg : {Reg::kF32, Reg::kF64}) {
    const bool wide = reg == Reg::kF64;
    for (const auto& [name, text] : kPerFloat) {
      pieces.push_back({ForReg(name, reg),
                        absl::StrReplaceAll(ForReg(text, reg),
                                            {{"@BIG", wide ? "0x1.fffffffffffffp+1023" : "0x1.fffffep+127f"},
                                             {"@TINY", wide ? "0x1p-900" : "0x1p-100f"},
                                             {"@HARD", wide ? "0x1p+50" : "0x1p+22f"},
                                             {"@SIGN", wide ? "(long)0x8000000000000000u" : "(int)0x80000000u"}})});
    }
  }
  pieces.push_back({"s1_round_bf16",
                    "// To the nearest bfloat16, ties to even.\n"
                    "S1 vf s1_round_bf16(vf x) {\n  vu u = s1_as(x, vu);\n"
                    "  u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;\n"
                    "  return s1_as((x != x) ? (vu)0x7fc00000u : u, vf);\n}\n"});
  pieces.push_back({"s1_half", "typedef _Float16 s1_half S1_LANES(W);\n"});
  pieces.push_back({"s1_round_f16", "S1 vf s1_round_f16(vf x) { return s1_to(s1_to(x, s1_half), vf); }\n"});
  pieces.push_back({"s1_random_key", kRandom});
  pieces.push_back({"s1_random_words", kRandomPair});
  pieces.push_back({"s1_random_unit", kRandomUnit});
  pieces.push_back({"s1_random", kRandomAny});
  return pieces;
}

}  // namespace stepone::codegen
