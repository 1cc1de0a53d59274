// Loads, stores, gathers and scatters of each dtype. @n: the dtype's name, @S: its storage type, @V and @s: vector and
// scalar in registers, @v: W elements as they lie in memory.
#include <string>
#include <utility>

#include "absl/strings/str_replace.h"
#include "compiler/codegen/lanes.h"
#include "compiler/codegen/prelude.h"
#include "compiler/ir/types.h"
#include "proto/str_cat.h"

namespace stepone::codegen {
namespace {

using ir::DType;

// Expressions of h (W stored elements), x (W values), e (one stored element), y (one value).
struct Conversion {
  const char* load;
  const char* store;
  const char* get;
  const char* set;
};

Conversion ConversionOf(DType type) {
  switch (type) {
    case DType::kFloat16:
      return {"s1_to(h, vf)", "s1_to(x, @v)", "(float)e", "(_Float16)y"};
    case DType::kBFloat16:
      // Values of this dtype are rounded already, so the upper half is all there is.
      return {"s1_as(s1_to(h, vu) << 16, vf)", "s1_to(s1_as(x, vu) >> 16, @v)", "s1_bits((unsigned)e << 16, float)",
              "(unsigned short)(s1_bits(y, unsigned) >> 16)"};
    case DType::kBool:
      return {"s1_to(h, vi) != 0", "s1_to(x & 1, @v)", "-(e != 0)", "(unsigned char)(y & 1)"};
    case DType::kInt16:
    case DType::kInt8:
    case DType::kUInt8:
      return {"s1_to(h, vi)", "s1_to(x, @v)", "e", "(@S)y"};
    default:
      return {"h", "x", "e", "y"};
  }
}

constexpr std::pair<const char*, const char*> kTemplates[] = {
    {"s1_mem_@n", "typedef @S s1_mem_@n __attribute__((ext_vector_type(@W), aligned(sizeof(@S)), may_alias));\n"},
    {"s1_get_@n", "S1 @s s1_get_@n(const @S* p) { @S e = *p; return @get; }\n"},
    {"s1_set_@n", "S1 void s1_set_@n(@S* p, @s y) { *p = @set; }\n"},
    {"s1_load_@n", "S1 @V s1_load_@n(const @S* p) { s1_mem_@n h = *(const s1_mem_@n*)p; return @load; }\n"},
    {"s1_store_@n", "S1 void s1_store_@n(@S* p, @V x) { *(s1_mem_@n*)p = @store; }\n"},
    // The first n lanes; n is a constant.
    {"s1_load_n_@n",
     "S1 @V s1_load_n_@n(const @S* p, int n) {\n"
     "  s1_mem_@n h = 0;\n  __builtin_memcpy(&h, p, n * sizeof(@S));\n  return @load;\n}\n"},
    {"s1_store_n_@n",
     "S1 void s1_store_n_@n(@S* p, @V x, int n) {\n"
     "  s1_mem_@n h = @store;\n  __builtin_memcpy(p, &h, n * sizeof(@S));\n}\n"},
    // Lanes of a mask; the others read as 0.
    {"s1_load_some_@n",
     "static __attribute__((noinline)) @V s1_load_some_@n(const @S* p, vi m) {\n"
     "  @V x = 0;\n  for (int i = 0; i < W; ++i) if (m[i]) x[i] = s1_get_@n(p + i);\n  return x;\n}\n"},
    {"s1_load_m_@n",
     "S1 @V s1_load_m_@n(const @S* p, vi m) {\n"
     "  if (s1_all(m)) return s1_load_@n(p);\n  return s1_any(m) ? s1_load_some_@n(p, m) : (@V)0;\n}\n"},
    {"s1_store_some_@n",
     "static __attribute__((noinline)) void s1_store_some_@n(@S* p, @V x, vi m) {\n"
     "  for (int i = 0; i < W; ++i) if (m[i]) s1_set_@n(p + i, x[i]);\n}\n"},
    {"s1_store_m_@n",
     "S1 void s1_store_m_@n(@S* p, @V x, vi m) {\n"
     "  if (s1_all(m)) s1_store_@n(p, x);\n  else if (s1_any(m)) s1_store_some_@n(p, x, m);\n}\n"},
    // Lanes at offsets o[i], in elements.
    {"s1_gather_@n",
     "S1 @V s1_gather_@n(const @S* p, @O o) {\n  @V x;\n#pragma clang loop unroll(full)\n"
     "  for (int i = 0; i < W; ++i) x[i] = s1_get_@n(p + o[i]);\n  return x;\n}\n"},
    {"s1_gather_m_@n",
     "static __attribute__((noinline)) @V s1_gather_m_@n(const @S* p, @O o, vi m) {\n"
     "  @V x = 0;\n  for (int i = 0; i < W; ++i) if (m[i]) x[i] = s1_get_@n(p + o[i]);\n  return x;\n}\n"},
    {"s1_scatter_@n",
     "S1 void s1_scatter_@n(@S* p, @O o, @V x) {\n#pragma clang loop unroll(full)\n"
     "  for (int i = 0; i < W; ++i) s1_set_@n(p + o[i], x[i]);\n}\n"},
    {"s1_scatter_m_@n",
     "static __attribute__((noinline)) void s1_scatter_m_@n(@S* p, @O o, @V x, vi m) {\n"
     "  for (int i = 0; i < W; ++i) if (m[i]) s1_set_@n(p + o[i], x[i]);\n}\n"},
};

}  // namespace

std::vector<Piece> MemoryPieces(int lanes) {
  std::vector<Piece> pieces;
  for (int d = static_cast<int>(DType::kFloat64); d <= static_cast<int>(DType::kBool); ++d) {
    const DType type = static_cast<DType>(d);
    const std::string name(ir::Name(type));
    const Conversion conversion = ConversionOf(type);
    for (const auto& [piece_name, text] : kTemplates) {
      // Gathers and scatters come twice: with int offsets, and ("far") with long ones.
      const bool offsets = std::string_view(text).find("@O") != std::string_view::npos;
      for (int far = 0; far <= (offsets ? 1 : 0); ++far) {
        std::string full_name = piece_name, full_text = text;
        if (far != 0) {
          absl::StrReplaceAll({{"_@n(", "_far_@n("}, {"s1_get_far_", "s1_get_"}, {"s1_set_far_", "s1_set_"}},
                              &full_text);
          absl::StrReplaceAll({{"s1_get_far_", "s1_get_"}, {"s1_set_far_", "s1_set_"}}, &full_text);
          full_name = absl::StrReplaceAll(full_name, {{"_@n", "_far_@n"}});
        }
        absl::StrReplaceAll({{"@load", conversion.load},
                             {"@store", conversion.store},
                             {"@get", conversion.get},
                             {"@set", conversion.set}},
                            &full_text);
        const std::vector<std::pair<std::string, std::string>> names = {{"@n", name},
                                                                        {"@v", "s1_mem_" + name},
                                                                        {"@S", StorageType(type)},
                                                                        {"@V", VectorType(RegOf(type))},
                                                                        {"@s", ScalarType(RegOf(type))},
                                                                        {"@O", far != 0 ? "vl" : "vi"},
                                                                        {"@W", StrCat(lanes)}};
        pieces.push_back({absl::StrReplaceAll(full_name, names), absl::StrReplaceAll(full_text, names)});
      }
    }
  }
  return pieces;
}

}  // namespace stepone::codegen
