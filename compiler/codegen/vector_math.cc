// exp, log and their kin on vf, for all floats.
// Coefficients come from coefficients/generate.py, lowest power first; it prints how far the exact polynomials are off.
// How far each function is off is in README.md; vector_math_test.cc holds it there.
#include <iterator>
#include <string>

#include "absl/strings/str_replace.h"
#include "compiler/codegen/prelude.h"
#include "proto/str_cat.h"

namespace stepone::codegen {
namespace {

constexpr const char* kExp[] = {"0x1p-1",        "0x1.555554p-3",  "0x1.5554fp-5",
                                "0x1.111308p-7", "0x1.6d4388p-10", "0x1.9e0812p-13"};
constexpr const char* kTanh[] = {"-0x1.555554p-2", "0x1.11108ap-3",  "-0x1.b9f6d2p-5",
                                 "0x1.63f1b4p-6",  "-0x1.0e27b2p-7", "0x1.21bb72p-9"};
constexpr const char* kErfNear[] = {"0x1.06eba8p-3",  "-0x1.812744p-2",  "0x1.ce2e96p-4",
                                    "-0x1.b81fc8p-6", "0x1.55b1f6p-8",   "-0x1.b64ccep-11",
                                    "0x1.a4b53cp-14", "-0x1.9f3caep-19", "-0x1.84fb3ep-20"};
constexpr const char* kErfFar[] = {"-0x1.c129e2p-14", "0x1.210ce4p+0", "0x1.44d558p-1",   "0x1.b4bb02p-4",
                                   "-0x1.81b516p-6",  "0x1.a26834p-9", "-0x1.48a388p-15", "-0x1.4b6512p-14",
                                   "0x1.e3ba0ep-17",  "-0x1.e28cep-21"};
constexpr const char* kSin[] = {"-0x1.555556p-3", "0x1.111164p-7", "-0x1.a047f6p-13", "0x1.77aaecp-19"};
constexpr const char* kCos[] = {"0x1.555556p-5", "-0x1.6c174ep-10", "0x1.a061b8p-16", "-0x1.322c78p-22"};
constexpr const char* kLog[] = {"0x1.555546p-2", "-0x1.00000ap-2", "0x1.99a546p-3", "-0x1.555ae4p-3", "0x1.232cfap-3",
                                "-0x1.fc4dap-4", "0x1.e7a54ep-4",  "-0x1.dd651p-4", "0x1.11c874p-4"};
constexpr const char* kPowLog[] = {"0x1.71547652b82ffp+1", "0x1.ec709dc39ca8fp-1", "0x1.2776c516c87f4p-1",
                                   "0x1.a617563401901p-2", "0x1.484fc383771a8p-2", "0x1.0bb45b2af5415p-2",
                                   "0x1.f1de4f8e0a94bp-3"};
constexpr const char* kPowExp[] = {"0x1.ffffffffff732p-1",  "0x1.62e42fef8639ep-1",  "0x1.ebfbdff940351p-3",
                                   "0x1.c6b08dd424bbep-5",  "0x1.3b2ab5b29fa96p-7",  "0x1.5d87488121abdp-10",
                                   "0x1.430aea9da241bp-13", "0x1.00daa899035e8p-16", "0x1.61919a23ccd22p-20"};

// p = Horner's scheme in `x` over coefficients, as lines of C.
template <size_t N>
std::string Horner(const char* type, const char* x, const char* const (&coefficients)[N]) {
  const char* suffix = type[1] == 'f' ? "f" : "";
  std::string text = StrCat("  ", type, " p = ", coefficients[N - 1], suffix, ";\n");
  for (size_t i = N - 1; i-- > 0;) {
    text += StrCat("  p = s1_fma(p, ", x, ", (", type, ")", coefficients[i], suffix, ");\n");
  }
  return text;
}

// 2^n for -126 <= n <= 127.
constexpr char kScale[] = "S1 vf s1_scale_f(vi n) { return s1_as((n + 127) << 23, vf); }\n";
// x = n ln 2 + r with |r| <= ln 2 / 2; n by way of a number so large that its last bit is worth 1.
constexpr char kReduceExp[] =
    "S1 vf s1_reduce_exp_f(vf x, vi* n) {\n"
    "  vf t = s1_fma(x, (vf)0x1.715476p+0f, (vf)0x1.8p+23f), k = t - 0x1.8p+23f;\n"
    "  *n = s1_as(t, vi) - 0x4b400000;\n"
    "  return s1_fma(k, (vf)-0x1.7f7d1cp-20f, s1_fma(k, (vf)-0x1.62e4p-1f, x));\n}\n";
// Scaled in two steps, so that results below the normal range are rounded once and right.
constexpr char kExpEnd[] =
    "  vf y = s1_fma(p, r * r, r) + 1;\n  vi h = n >> 1;\n"
    "  return y * s1_scale_f(h) * s1_scale_f(n - h);\n}\n";
constexpr char kExpBegin[] =
    "S1 vf s1_exp_f(vf x) {\n"
    "  x = x > 89 ? 89 : x;\n  x = x < -104 ? -104 : x;\n"
    "  vi n;\n  vf r = s1_reduce_exp_f(x, &n);\n";
// 2^n expm1(r) + (2^n - 1), with half of 2^n, which does not overflow.
constexpr char kExpm1Begin[] =
    "S1 vf s1_expm1_f(vf x) {\n"
    "  vf c = x > 89 ? 89 : x;\n  c = c < -18 ? -18 : c;\n"
    "  vi n;\n  vf r = s1_reduce_exp_f(c, &n);\n";
constexpr char kExpm1End[] =
    "  vf y = s1_fma(p, r * r, r), s = s1_scale_f(n - 1);\n"
    "  y = 2 * s1_fma(s, y, s - 0.5f);\n"
    // Halves of the smallest numbers would be rounded.
    "  return __builtin_elementwise_abs(x) < 0x1p-25f ? x : y;\n}\n";
// log(1 + f) + e ln 2 for 1 + f in [sqrt(1/2), sqrt(2)).
constexpr char kLogCoreBegin[] = "S1 vf s1_log_core_f(vf f, vf e) {\n";
constexpr char kLogCoreEnd[] =
    "  vf s = f * f, y = s1_fma(e, (vf)0x1.7f7d1cp-20f, p * f * s);\n"
    "  y = s1_fma(s, (vf)-0.5f, y) + f;\n  return s1_fma(e, (vf)0x1.62e4p-1f, y);\n}\n";
constexpr char kLog1[] =
    "S1 vf s1_log_f(vf x) {\n"
    "  vi tiny = x < 0x1p-126f;\n  vf a = tiny ? x * 0x1p+23f : x;\n"
    "  vi i = s1_as(a, vi) - 0x3f3504f3, e = i >> 23;\n"
    "  vf m = s1_as((i & 0x7fffff) + 0x3f3504f3, vf);\n"
    "  vf y = s1_log_core_f(m - 1, s1_to(e - (tiny & 23), vf));\n"
    "  y = x == __builtin_inff() ? x : y;\n  y = x == 0 ? -__builtin_inff() : y;\n"
    "  return (x < 0) | (x != x) ? (vf)__builtin_nanf(\"\") : y;\n}\n";
// f = (1 + x) 2^-e - 1, from x itself where that keeps its last bits.
constexpr char kLog1p[] =
    "S1 vf s1_log1p_f(vf x) {\n"
    "  vf u = x + 1;\n  vi i = s1_as(u, vi) - 0x3f3504f3, e = i >> 23;\n"
    "  vf m = s1_as((i & 0x7fffff) + 0x3f3504f3, vf), s = s1_scale_f(e > 60 ? 0 : -e);\n"
    "  vf f = e > 60 ? m - 1 : s1_fma(x, s, s - 1);\n"
    "  vf y = s1_log_core_f(f, s1_to(e, vf));\n"
    "  y = (x == __builtin_inff()) | (x == 0) ? x : y;\n  y = x == -1 ? -__builtin_inff() : y;\n"
    "  return (x < -1) | (x != x) ? (vf)__builtin_nanf(\"\") : y;\n}\n";
constexpr char kSigmoid[] =
    "S1 vf s1_sigmoid_f(vf x) {\n"
    "  vf e = s1_exp_f(-__builtin_elementwise_abs(x));\n"
    "  return (x < 0 ? e : (vf)1) / (1 + e);\n}\n";
constexpr char kTanhBegin[] =
    "S1 vf s1_tanh_f(vf x) {\n"
    "  vf a = __builtin_elementwise_abs(x), s = x * x;\n";
constexpr char kTanhEnd[] =
    "  vf near = s1_fma(p * s, x, x);\n  vf b = a > 10 ? 10 : a;\n"
    "  vf far = 1 - 2 / (s1_exp_f(b + b) + 1);\n"
    "  far = s1_as(s1_as(far, vi) | (s1_as(x, vi) & (int)0x80000000u), vf);\n"
    "  return a < 0.6f ? (x == 0 ? x : near) : far;\n}\n";
constexpr char kErfNearBegin[] = "S1 vf s1_erf_near_f(vf x) {\n  vf s = x * x;\n";
constexpr char kErfNearEnd[] = "  return s1_fma(p, x, x);\n}\n";
constexpr char kErfFarBegin[] =
    "S1 vf s1_erf_far_f(vf x) {\n  vf a = __builtin_elementwise_abs(x), t = a > 4 ? 4 : a;\n";
constexpr char kErfFarEnd[] =
    "  vf y = 1 - s1_exp_f(-p);\n  y = a > 3.95f ? 1 : y;\n"
    "  return s1_as(s1_as(y, vi) | (s1_as(x, vi) & (int)0x80000000u), vf);\n}\n";
constexpr char kErf[] =
    "S1 vf s1_erf_f(vf x) {\n  vf near = s1_erf_near_f(x), far = s1_erf_far_f(x);\n"
    "  return __builtin_elementwise_abs(x) < 0.98f ? near : far;\n}\n";
// x = k pi / 2 + r; what is too large for three steps goes through s1_reduce_lane_d, lane by lane.
constexpr char kReduceSin[] =
    "S1 vf s1_reduce_sin_f(vf x, vi* quadrant) {\n"
    "  vf t = s1_fma(x, (vf)0x1.45f306p-1f, (vf)0x1.8p+23f), k = t - 0x1.8p+23f;\n"
    "  vi q = s1_as(t, vi);\n"
    "  vf r = s1_fma(k, (vf)-0x1.921fb6p+0f, x);\n  r = s1_fma(k, (vf)0x1.777a5cp-25f, r);\n"
    "  r = s1_fma(k, (vf)0x1.ee59dap-50f, r);\n"
    "  vi hard = ~(__builtin_elementwise_abs(x) < 30000.0f);\n"
    "  if (s1_any(hard)) {\n    for (int i = 0; i < W; ++i) if (hard[i]) {\n"
    "      int n;\n      double d = s1_reduce_lane_d(x[i], &n);\n      r[i] = (float)d;\n      q[i] = n;\n    }\n  }\n"
    "  *quadrant = q;\n  return r;\n}\n";
constexpr char kSinPolyBegin[] = "S1 vf s1_sin_poly_f(vf r) {\n  vf s = r * r;\n";
constexpr char kSinPolyEnd[] = "  return s1_fma(p * s, r, r);\n}\n";
constexpr char kCosPolyBegin[] = "S1 vf s1_cos_poly_f(vf r) {\n  vf s = r * r;\n";
constexpr char kCosPolyEnd[] = "  return s1_fma(p * s, s, s1_fma(s, (vf)-0.5f, (vf)1));\n}\n";
constexpr char kSinCos[] =
    "S1 vf s1_@name_f(vf x) {\n  vi q;\n  vf r = s1_reduce_sin_f(x, &q);\n@shift"
    "  vf y = (q & 1) != 0 ? s1_cos_poly_f(r) : s1_sin_poly_f(r);\n"
    "  y = s1_as(s1_as(y, vi) ^ ((q & 2) << 30), vf);\n  return @end;\n}\n";
// In float64: log2 of |x| by atanh, 2^(y log2 |x|).
constexpr char kPowLogBegin[] =
    "S1 vd s1_pow_log2(vf x) {\n"
    "  vl i = s1_as(s1_to(x, vd), vl) - 0x3fe6a09e667f3bcdL, e = i >> 52;\n"
    "  vd m = s1_as((i & 0xfffffffffffffL) + 0x3fe6a09e667f3bcdL, vd);\n"
    "  vd s = (m - 1) / (m + 1), z = s * s;\n";
constexpr char kPowLogEnd[] = "  return s1_fma(p, s, s1_to(s1_to(e, vi), vd));\n}\n";
constexpr char kPowExpBegin[] =
    "S1 vf s1_pow_exp2(vd t) {\n"
    "  t = t > 300 ? 300 : t;\n  t = t < -300 ? -300 : t;\n"
    "  vd k = __builtin_elementwise_roundeven(t), f = t - k;\n";
constexpr char kPowExpEnd[] =
    "  vl n = s1_to(s1_to(k, vi), vl);\n  return s1_to(p * s1_as((n + 1023) << 52, vd), vf);\n}\n";
constexpr char kPow[] =
    "S1 vf s1_pow_f(vf x, vf y) {\n"
    "  vf a = __builtin_elementwise_abs(x);\n  vf r = s1_pow_exp2(s1_pow_log2(a) * s1_to(y, vd));\n"
    "  vf inf = __builtin_inff(), b = __builtin_elementwise_abs(y);\n"
    "  r = a == 0 ? (y < 0 ? inf : (vf)0) : r;\n  r = a == inf ? (y < 0 ? (vf)0 : inf) : r;\n"
    "  r = b == inf ? (a == 1 ? (vf)1 : (((a < 1) == (y < 0)) ? inf : (vf)0)) : r;\n"
    "  vf h = y * 0.5f;\n"
    "  vi whole = (__builtin_elementwise_trunc(y) == y), odd = whole & (__builtin_elementwise_trunc(h) != h) & (b < "
    "0x1p+24f);\n"
    "  vi sign = s1_as(x, vi) & (int)0x80000000u;\n"
    "  r = s1_as(s1_as(r, vi) ^ (sign & odd), vf);\n"
    "  r = ((x < 0) & (a != inf) & ~whole) ? (vf)__builtin_nanf(\"\") : r;\n"
    "  r = (x != x) | (y != y) ? x + y : r;\n"
    "  return (y == 0) | (x == 1) ? (vf)1 : r;\n}\n";

}  // namespace

std::vector<Piece> FloatMathPieces() {
  const auto between = [](const char* begin, const std::string& horner, const char* end) {
    return StrCat(begin, horner, end);
  };
  const auto trig = [](const char* name, const char* shift, const char* end) {
    return absl::StrReplaceAll(kSinCos, {{"@name", name}, {"@shift", shift}, {"@end", end}});
  };
  return {
      {"s1_scale_f", kScale},
      {"s1_reduce_exp_f", kReduceExp},
      {"s1_exp_f", between(kExpBegin, Horner("vf", "r", kExp), kExpEnd)},
      {"s1_expm1_f", between(kExpm1Begin, Horner("vf", "r", kExp), kExpm1End)},
      {"s1_log_core_f", between(kLogCoreBegin, Horner("vf", "f", kLog), kLogCoreEnd)},
      {"s1_log_f", kLog1},
      {"s1_log1p_f", kLog1p},
      {"s1_sigmoid_f", kSigmoid},
      {"s1_tanh_f", between(kTanhBegin, Horner("vf", "s", kTanh), kTanhEnd)},
      {"s1_erf_near_f", between(kErfNearBegin, Horner("vf", "s", kErfNear), kErfNearEnd)},
      {"s1_erf_far_f", between(kErfFarBegin, Horner("vf", "t", kErfFar), kErfFarEnd)},
      {"s1_erf_f", kErf},
      {"s1_reduce_sin_f", kReduceSin},
      {"s1_sin_poly_f", between(kSinPolyBegin, Horner("vf", "s", kSin), kSinPolyEnd)},
      {"s1_cos_poly_f", between(kCosPolyBegin, Horner("vf", "s", kCos), kCosPolyEnd)},
      {"s1_sin_f", trig("sin", "", "x == 0 ? x : y")},
      {"s1_cos_f", trig("cos", "  q += 1;\n", "y")},
      {"s1_pow_log2", between(kPowLogBegin, Horner("vd", "z", kPowLog), kPowLogEnd)},
      {"s1_pow_exp2", between(kPowExpBegin, Horner("vd", "f", kPowExp), kPowExpEnd)},
      {"s1_pow_f", kPow},
  };
}

}  // namespace stepone::codegen
