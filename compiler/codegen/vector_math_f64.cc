// exp, log and their kin on vd, for all doubles.
// Coefficients come from coefficients/generate.py, lowest power first; it prints how far the exact polynomials are off.
// How far each function is off is in README.md; vector_math_test.cc holds it there.
#include <iterator>
#include <string>

#include "absl/strings/str_replace.h"
#include "compiler/codegen/prelude.h"
#include "proto/str_cat.h"

namespace stepone::codegen {
namespace {

constexpr const char* kExp[] = {"0x1p-1",
                                "0x1.5555555555555p-3",
                                "0x1.5555555555557p-5",
                                "0x1.1111111111307p-7",
                                "0x1.6c16c16c1577ap-10",
                                "0x1.a01a019f16ea6p-13",
                                "0x1.a01a01ab1629cp-16",
                                "0x1.71de3e2510692p-19",
                                "0x1.27e4d13b65019p-22",
                                "0x1.ae56ea23fd52fp-26",
                                "0x1.1f83f591b7979p-29",
                                "0x1.734d87a506ea6p-33"};
constexpr const char* kTanh[] = {"-0x1.5555555555554p-2",  "0x1.1111111110efep-3",   "-0x1.ba1ba1b9f86aap-5",
                                 "0x1.664f487976269p-6",   "-0x1.226e33ef8d1f3p-7",  "0x1.d6d388d297804p-9",
                                 "-0x1.7d9ea9381eb06p-10", "0x1.352199a9de208p-11",  "-0x1.f2178ae220ad2p-13",
                                 "0x1.83e515f26135ap-14",  "-0x1.0577f8fc67bc1p-15", "0x1.b4239931906bap-18"};
constexpr const char* kErfNear[] = {"0x1.06eba8214db69p-3",   "-0x1.812746b037a0fp-2",  "0x1.ce2f21a044d74p-4",
                                    "-0x1.b82ce3135aee6p-6",  "0x1.565bcd3d5b9d1p-8",   "-0x1.c02dc14fba914p-11",
                                    "0x1.f9a5b5bcdb85fp-14",  "-0x1.f52b40fac8db1p-17", "0x1.c2a86806acc6p-20",
                                    "-0x1.0113eba70f67ap-22", "0x1.37f86188de24ep-23",  "-0x1.674321b6aa481p-23",
                                    "0x1.4b2d318d90dd8p-23",  "-0x1.b3433dca72628p-24", "0x1.8009b36eb262bp-25",
                                    "-0x1.97c37df930fadp-27", "0x1.89b63d542f579p-30"};
constexpr const char* kErfFar[] = {"0x1.058671b52c776p-2",   "-0x1.b57034efd3f72p-2",  "0x1.eeea7dc8a7876p-3",
                                   "-0x1.437f0b68c0cf3p-4",  "0x1.e94715981173cp-9",   "0x1.ca95ed5357e9ap-8",
                                   "-0x1.bc25a4ddb9ad2p-11", "-0x1.016b5cd0802fdp-10", "0x1.6d5fac88a8b0fp-15",
                                   "0x1.6da943fb6c306p-13",  "0x1.cdb4f0b28b2f4p-16",  "-0x1.ce90f0e8b9dcbp-16",
                                   "-0x1.d2ec68f9dc8a3p-17", "0x1.56f91adef053ep-20",  "0x1.da4cee72734fp-19",
                                   "0x1.07143d49e3b12p-19",  "-0x1.1ad26a56a27fep-23", "-0x1.8d9d8f68de077p-19",
                                   "0x1.fbb666c526d24p-21",  "0x1.740ece90a679ap-19",  "-0x1.2551104dad7b2p-19"};
constexpr const char* kSin[] = {"-0x1.5555555555555p-3", "0x1.111111111108dp-7",   "-0x1.a01a01a007695p-13",
                                "0x1.71de3a4103be8p-19", "-0x1.ae643ea111887p-26", "0x1.611599d9c988fp-33",
                                "-0x1.a5de1048781acp-41"};
constexpr const char* kCos[] = {"0x1.5555555555555p-5",   "-0x1.6c16c16c16b4dp-10", "0x1.a01a01a002e1ep-16",
                                "-0x1.27e4fb6212968p-22", "0x1.1eed794fc410ap-29",  "-0x1.9380025bc6b05p-37",
                                "0x1.a3156ab571a42p-45"};
constexpr const char* kLog[] = {"0x1.5555555555555p-1", "0x1.9999999999d26p-2", "0x1.2492492436dp-2",
                                "0x1.c71c724f6af1ap-3", "0x1.745ce054d8d09p-3", "0x1.3b206ab0b4023p-3",
                                "0x1.0f609e10ed2f9p-3", "0x1.0f4dbee0390a7p-3"};
constexpr char kTwoOverPi[] =
    "0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561, "
    "0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484, "
    "0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f, "
    "0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b, "
    "0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab ";

template <size_t N>
std::string Horner(const char* x, const char* const (&coefficients)[N]) {
  std::string text = StrCat("  vd p = ", coefficients[N - 1], ";\n");
  for (size_t i = N - 1; i-- > 0;) text += StrCat("  p = s1_fma(p, ", x, ", (vd)", coefficients[i], ");\n");
  return text;
}

// 2^n for -1022 <= n <= 1023.
constexpr char kScale[] = "S1 vd s1_scale_d(vl n) { return s1_as((n + 1023) << 52, vd); }\n";
constexpr char kReduceExp[] =
    "S1 vd s1_reduce_exp_d(vd x, vl* n) {\n"
    "  vd t = s1_fma(x, (vd)0x1.71547652b82fep+0, (vd)0x1.8p+52), k = t - 0x1.8p+52;\n"
    "  *n = s1_as(t, vl) - 0x4338000000000000L;\n"
    "  return s1_fma(k, (vd)-0x1.ef35793c7673p-45, s1_fma(k, (vd)-0x1.62e42fefa38p-1, x));\n}\n";
constexpr char kExpBegin[] =
    "S1 vd s1_exp_d(vd x) {\n"
    "  x = x > 710 ? 710 : x;\n  x = x < -746 ? -746 : x;\n"
    "  vl n;\n  vd r = s1_reduce_exp_d(x, &n);\n";
constexpr char kExpEnd[] =
    "  vd y = s1_fma(p, r * r, r) + 1;\n  vl h = n >> 1;\n"
    "  return y * s1_scale_d(h) * s1_scale_d(n - h);\n}\n";
constexpr char kExpm1Begin[] =
    "S1 vd s1_expm1_d(vd x) {\n"
    "  vd c = x > 710 ? 710 : x;\n  c = c < -38 ? -38 : c;\n"
    "  vl n;\n  vd r = s1_reduce_exp_d(c, &n);\n";
constexpr char kExpm1End[] =
    "  vd y = s1_fma(p, r * r, r), s = s1_scale_d(n - 1);\n"
    "  y = 2 * s1_fma(s, y, s - 0.5);\n"
    "  return __builtin_elementwise_abs(x) < 0x1p-54 ? x : y;\n}\n";
// log(1 + f) + e ln 2, by 2 atanh(s) with s = f / (2 + f).
constexpr char kLogCoreBegin[] = "S1 vd s1_log_core_d(vd f, vd e) {\n  vd s = f / (f + 2), z = s * s;\n";
constexpr char kLogCoreEnd[] =
    "  vd h = f * f * 0.5, y = s1_fma(s, s1_fma(p, z, h), e * 0x1.ef35793c7673p-45);\n"
    "  return s1_fma(e, (vd)0x1.62e42fefa38p-1, f - (h - y));\n}\n";
constexpr char kLog1[] =
    "S1 vd s1_log_d(vd x) {\n"
    "  vl tiny = x < 0x1p-1022;\n  vd a = tiny ? x * 0x1p+54 : x;\n"
    "  vl i = s1_as(a, vl) - 0x3fe6a09e667f3bcdL, e = i >> 52;\n"
    "  vd m = s1_as((i & 0xfffffffffffffL) + 0x3fe6a09e667f3bcdL, vd);\n"
    "  vd y = s1_log_core_d(m - 1, s1_to(s1_to(e - (tiny & 54), vi), vd));\n"
    "  y = x == __builtin_inf() ? x : y;\n  y = x == 0 ? -__builtin_inf() : y;\n"
    "  return (x < 0) | (x != x) ? (vd)__builtin_nan(\"\") : y;\n}\n";
constexpr char kLog1p[] =
    "S1 vd s1_log1p_d(vd x) {\n"
    "  vd u = x + 1;\n  vl i = s1_as(u, vl) - 0x3fe6a09e667f3bcdL, e = i >> 52;\n"
    "  vd m = s1_as((i & 0xfffffffffffffL) + 0x3fe6a09e667f3bcdL, vd), s = s1_scale_d(e > 200 ? 0 : -e);\n"
    "  vd f = e > 200 ? m - 1 : s1_fma(x, s, s - 1);\n"
    "  vd y = s1_log_core_d(f, s1_to(s1_to(e, vi), vd));\n"
    "  y = (x == __builtin_inf()) | (x == 0) ? x : y;\n  y = x == -1 ? -__builtin_inf() : y;\n"
    "  return (x < -1) | (x != x) ? (vd)__builtin_nan(\"\") : y;\n}\n";
constexpr char kSigmoid[] =
    "S1 vd s1_sigmoid_d(vd x) {\n"
    "  vd e = s1_exp_d(-__builtin_elementwise_abs(x));\n  return (x < 0 ? e : (vd)1) / (1 + e);\n}\n";
constexpr char kTanhBegin[] = "S1 vd s1_tanh_d(vd x) {\n  vd a = __builtin_elementwise_abs(x), s = x * x;\n";
constexpr char kTanhEnd[] =
    "  vd near = s1_fma(p * s, x, x);\n  vd b = a > 25 ? 25 : a;\n"
    "  vd far = 1 - 2 / (s1_exp_d(b + b) + 1);\n"
    "  far = s1_as(s1_as(far, vl) | (s1_as(x, vl) & (long)0x8000000000000000u), vd);\n"
    "  return a < 0.6 ? (x == 0 ? x : near) : far;\n}\n";
constexpr char kErfNearBegin[] = "S1 vd s1_erf_near_d(vd x) {\n  vd s = x * x;\n";
constexpr char kErfNearEnd[] = "  return s1_fma(p, x, x);\n}\n";
constexpr char kErfFarBegin[] =
    "S1 vd s1_erf_far_d(vd x) {\n"
    "  vd a = __builtin_elementwise_abs(x), t = a > 6 ? 6 : a;\n  t = t < 1 ? 1 : t;\n  vd q = (t - 2) / (t + 2);\n";
constexpr char kErfFarEnd[] =
    "  vd y = 1 - s1_exp_d(-(t * t)) * p;\n  y = x != x ? x : y;\n"
    "  return s1_as(s1_as(y, vl) | (s1_as(x, vl) & (long)0x8000000000000000u), vd);\n}\n";
constexpr char kErf[] =
    "S1 vd s1_erf_d(vd x) {\n  vd near = s1_erf_near_d(x), far = s1_erf_far_d(x);\n"
    "  return __builtin_elementwise_abs(x) < 1 ? near : far;\n}\n";
// x - n pi / 2 for any finite x, by multiplying its bits with as many bits of 2 / pi as matter (Payne and Hanek).
constexpr char kReduceLane[] =
    "static __attribute__((noinline)) double s1_reduce_lane_d(double x, int* quadrant) {\n"
    "  static const unsigned two_over_pi[] = {0, 0, @words};\n"
    "  unsigned long b = s1_bits(x, unsigned long);\n"
    "  int e = (int)(b >> 52 & 2047);\n  *quadrant = 0;\n"
    "  if (e == 2047) return x - x;\n  if (e < 1023 - 20) return x;\n"
    "  unsigned long m = (b & 0xfffffffffffffu) | 0x10000000000000u;\n"
    // x = m 2^(e - 1075). Bits of 2 / pi above 2^-(e - 1075 - 2) give multiples of 4 quadrants.
    "  int skip = e - 1075 - 2 + 64;\n  int word = skip >> 5, shift = skip & 31;\n"
    "  unsigned long w[3];\n"
    "  for (int i = 0; i < 3; ++i) {\n"
    "    unsigned long high = (unsigned long)two_over_pi[word + 2 * i] << 32 | two_over_pi[word + 2 * i + 1];\n"
    "    w[i] = shift ? high << shift | two_over_pi[word + 2 * i + 2] >> (32 - shift) : high;\n  }\n"
    "  unsigned __int128 low = (unsigned __int128)m * w[2], mid = (unsigned __int128)m * w[1];\n"
    "  unsigned __int128 sum = mid + (unsigned long)(low >> 64) + ((unsigned __int128)(m * w[0]) << 64);\n"
    // The product's fixed point: 2 bits of quadrant, then 126 of fraction.
    "  int q = (int)(sum >> 126);\n  __int128 f = (__int128)(sum << 2);\n  q += f < 0;\n"
    "  *quadrant = x < 0 ? -q : q;\n"
    "  double h = (double)(long)(f >> 64), l = (double)(unsigned long)f * 0x1p-64;\n"
    "  h = h * 0x1p-64, l = l * 0x1p-64;\n"
    "  double r = __builtin_fma(h, 0x1.921fb54442d18p+0, __builtin_fma(h, 0x1.1a62633145c07p-54, l * "
    "0x1.921fb54442d18p+0));\n"
    "  return x < 0 ? -r : r;\n}\n";
constexpr char kReduceSin[] =
    "S1 vd s1_reduce_sin_d(vd x, vl* quadrant) {\n"
    "  vd t = s1_fma(x, (vd)0x1.45f306dc9c883p-1, (vd)0x1.8p+52), k = t - 0x1.8p+52;\n"
    "  vl q = s1_as(t, vl);\n"
    "  vd r = s1_fma(k, (vd)-0x1.921fb54442d18p+0, x);\n  r = s1_fma(k, (vd)-0x1.1a62633145c07p-54, r);\n"
    "  r = s1_fma(k, (vd)0x1.f1976b7ed8fbcp-110, r);\n"
    "  vl hard = ~(__builtin_elementwise_abs(x) < 1e6);\n"
    "  if (__builtin_reduce_or(hard)) {\n    for (int i = 0; i < W; ++i) if (hard[i]) {\n"
    "      int n;\n      r[i] = s1_reduce_lane_d(x[i], &n);\n      q[i] = n;\n    }\n  }\n"
    "  *quadrant = q;\n  return r;\n}\n";
constexpr char kSinPolyBegin[] = "S1 vd s1_sin_poly_d(vd r) {\n  vd s = r * r;\n";
constexpr char kSinPolyEnd[] = "  return s1_fma(p * s, r, r);\n}\n";
constexpr char kCosPolyBegin[] = "S1 vd s1_cos_poly_d(vd r) {\n  vd s = r * r;\n";
constexpr char kCosPolyEnd[] = "  return s1_fma(p * s, s, s1_fma(s, (vd)-0.5, (vd)1));\n}\n";
constexpr char kSinCos[] =
    "S1 vd s1_@name_d(vd x) {\n  vl q;\n  vd r = s1_reduce_sin_d(x, &q);\n@shift"
    "  vd y = (q & 1) != 0 ? s1_cos_poly_d(r) : s1_sin_poly_d(r);\n"
    "  y = s1_as(s1_as(y, vl) ^ ((q & 2) << 62), vd);\n  return @end;\n}\n";
// log |x| as h + l, good to some 2^-60 of its size: the first terms of 2 atanh(s) + e ln 2 are kept in two parts.
constexpr char kPowLogBegin[] =
    "S1 vd s1_pow_log_d(vd x, vd* low) {\n"
    "  vl tiny = x < 0x1p-1022;\n  vd a = tiny ? x * 0x1p+54 : x;\n"
    "  vl i = s1_as(a, vl) - 0x3fe6a09e667f3bcdL, n = i >> 52;\n"
    "  vd m = s1_as((i & 0xfffffffffffffL) + 0x3fe6a09e667f3bcdL, vd), e = s1_to(s1_to(n - (tiny & 54), vi), vd);\n"
    "  vd f = m - 1, d = m + 1, d_low = m - (d - 1), s = f / d;\n"
    "  vd s_low = (s1_fma(-s, d, f) - s * d_low) / d, z = s * s;\n";
constexpr char kPowLogEnd[] =
    "  vd t = s + s, t_low = s_low + s_low + p * z * s;\n"
    "  vd big = e * 0x1.62e42fefa38p-1;\n  vd sum = big + t, rest = (big - sum) + t;\n"
    "  rest = e == 0 ? (vd)0 : rest;\n  sum = e == 0 ? t : sum;\n"
    "  rest += s1_fma(e, (vd)0x1.ef35793c7673p-45, t_low);\n"
    "  vd h = sum + rest;\n  *low = (sum - h) + rest;\n  return h;\n}\n";
constexpr char kPow[] =
    "S1 vd s1_pow_d(vd x, vd y) {\n"
    "  vd a = __builtin_elementwise_abs(x), low;\n  vd h = s1_pow_log_d(a, &low);\n"
    "  vd t = h * y, t_low = s1_fma(h, y, -t) + low * y;\n"
    "  vl safe = __builtin_elementwise_abs(t) < 800;\n  t_low = safe ? t_low : 0;\n"
    "  vd r = s1_exp_d(t);\n  vl scalable = safe & (r > 0) & (r < __builtin_inf());\n"
    "  r = scalable ? s1_fma(r, t_low, r) : r;\n"
    "  vd inf = __builtin_inf(), b = __builtin_elementwise_abs(y);\n"
    "  r = a == 0 ? (y < 0 ? inf : (vd)0) : r;\n  r = a == inf ? (y < 0 ? (vd)0 : inf) : r;\n"
    "  r = b == inf ? (a == 1 ? (vd)1 : (((a < 1) == (y < 0)) ? inf : (vd)0)) : r;\n"
    "  vd half = y * 0.5;\n"
    "  vl whole = (__builtin_elementwise_trunc(y) == y), odd = whole & (__builtin_elementwise_trunc(half) != half) & "
    "(b < 0x1p+53);\n"
    "  vl sign = s1_as(x, vl) & (long)0x8000000000000000u;\n"
    "  r = s1_as(s1_as(r, vl) ^ (sign & odd), vd);\n"
    "  r = ((x < 0) & (a != inf) & ~whole) ? (vd)__builtin_nan(\"\") : r;\n"
    "  r = (x != x) | (y != y) ? x + y : r;\n"
    "  return (y == 0) | (x == 1) ? (vd)1 : r;\n}\n";

}  // namespace

std::vector<Piece> DoubleMathPieces() {
  const auto trig = [](const char* name, const char* shift, const char* end) {
    return absl::StrReplaceAll(kSinCos, {{"@name", name}, {"@shift", shift}, {"@end", end}});
  };
  return {
      {"s1_scale_d", kScale},
      {"s1_reduce_exp_d", kReduceExp},
      {"s1_exp_d", StrCat(kExpBegin, Horner("r", kExp), kExpEnd)},
      {"s1_expm1_d", StrCat(kExpm1Begin, Horner("r", kExp), kExpm1End)},
      {"s1_log_core_d", StrCat(kLogCoreBegin, Horner("z", kLog), kLogCoreEnd)},
      {"s1_log_d", kLog1},
      {"s1_log1p_d", kLog1p},
      {"s1_sigmoid_d", kSigmoid},
      {"s1_tanh_d", StrCat(kTanhBegin, Horner("s", kTanh), kTanhEnd)},
      {"s1_erf_near_d", StrCat(kErfNearBegin, Horner("s", kErfNear), kErfNearEnd)},
      {"s1_erf_far_d", StrCat(kErfFarBegin, Horner("q", kErfFar), kErfFarEnd)},
      {"s1_erf_d", kErf},
      {"s1_reduce_lane_d", absl::StrReplaceAll(kReduceLane, {{"@words", kTwoOverPi}})},
      {"s1_reduce_sin_d", kReduceSin},
      {"s1_sin_poly_d", StrCat(kSinPolyBegin, Horner("s", kSin), kSinPolyEnd)},
      {"s1_cos_poly_d", StrCat(kCosPolyBegin, Horner("s", kCos), kCosPolyEnd)},
      {"s1_sin_d", trig("sin", "", "x == 0 ? x : y")},
      {"s1_cos_d", trig("cos", "  q += 1;\n", "y")},
      {"s1_pow_log_d", StrCat(kPowLogBegin, Horner("z", kLog), kPowLogEnd)},
      {"s1_pow_d", kPow},
  };
}

}  // namespace stepone::codegen
