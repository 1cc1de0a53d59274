#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "cache/cache_key.h"
#include "tests/unit/cache/sample_request.h"

namespace stepone {
namespace {

std::map<std::string, std::string> Describe(const SampleRequest& request) {
  std::map<std::string, std::string> fields;
  for (const auto& [field, value] : DescribeKey(request.Key().canonical)) {
    EXPECT_TRUE(fields.emplace(field, value).second) << field << " is named twice";
  }
  return fields;
}

TEST(KeyDescriptionTest, NamesEveryField) {
  auto fields = Describe(RichRequest());
  const std::map<std::string, std::string> expected = {
      {"key_version", "1"},
      {"tenant", "team-a"},
      {"compiler_fingerprint", "compiler 1"},
      {"target.isa", "x86-64-v4"},
      {"target.features[1]", "avx512bf16"},
      {"target.vector_bytes", "64"},
      {"options.mode", "max-autotune"},
      {"options.deterministic", "1"},
      {"options.framework_version", "2.13.0"},
      {"options.backend_options[1].name", "beta"},
      {"options.backend_options[1].value", "2"},
      {"graph.role", "forward"},
      {"graph.symbols[0].max", "1024"},
      {"graph.inputs[0].dtype", "float32"},
      {"graph.inputs[0].sizes[1]", "16"},
      {"graph.inputs[0].strides[0]", "16"},
      {"graph.inputs[2].layout", "sparse_coo"},
      {"graph.inputs[3].sym_int", "(+ $0 1)"},
      {"graph.static_inputs[0]", "1"},
      {"graph.nodes[0].op", "aten.add.Tensor"},
      {"graph.nodes[0].arguments[1].name", "other"},
      {"graph.nodes[0].arguments[1].value[0]", "%1"},
      {"graph.nodes[1].arguments[1].value_list.none[0]", "1"},
      {"graph.nodes[1].arguments[1].value_list.value[0]", "%6"},
      {"graph.nodes[2].arguments[4].float[0]", "0.5 (bits 3fe0000000000000)"},
      {"graph.nodes[2].arguments[11].dtype", "bfloat16"},
      {"graph.nodes[3].arguments[2].process_group", "0"},
      {"graph.outputs[1].int[0]", "12"},
  };
  for (const auto& [field, value] : expected) EXPECT_EQ(fields[field], value) << field;
  for (const auto& [field, value] : fields) EXPECT_EQ(value.find("4711"), std::string::npos) << field;
}

TEST(KeyDescriptionTest, EveryValueOfTheMaterialIsDescribed) {
  // Equal descriptions mean equal material: nothing in a key escapes an explanation.
  const SampleRequest request = RichRequest();
  const KeyMaterial material = request.Key();
  for (size_t i = 1; i < material.canonical.size(); ++i) {
    std::string changed = material.canonical;
    changed[i] ^= 1;
    EXPECT_NE(DescribeKey(changed), DescribeKey(material.canonical)) << "byte " << i;
  }
}

TEST(KeyDescriptionTest, DiffNamesWhatDiffers) {
  const SampleRequest request = RichRequest();
  SampleRequest other = request;
  EXPECT_TRUE(DiffKeys(request.Key().canonical, other.Key().canonical).empty());
  other.target.set_isa("x86-64-v3");
  other.graph.mutable_nodes(0)->set_op("aten.sub.Tensor");
  other.options.mutable_backend_options()->erase("beta");
  const auto differences = DiffKeys(request.Key().canonical, other.Key().canonical);
  std::map<std::string, std::string> text;
  for (const auto& difference : differences)
    text[difference.field()] = difference.requested() + " / " + difference.nearest();
  const std::map<std::string, std::string> expected = {
      {"target.isa", "x86-64-v4 / x86-64-v3"},
      {"options.backend_options[1].name", "beta / (absent)"},
      {"options.backend_options[1].value", "2 / (absent)"},
      {"graph.nodes[0].op", "aten.add.Tensor / aten.sub.Tensor"},
  };
  EXPECT_EQ(text, expected);
}

TEST(KeyDescriptionTest, LongDiffsAreCut) {
  const auto differences = DiffKeys(LargeRequest(100).Key().canonical, RichRequest().Key().canonical, 10);
  ASSERT_EQ(differences.size(), 11u);
  EXPECT_EQ(differences[10].field(), "...");
  EXPECT_NE(differences[10].requested().find("more fields differ"), std::string::npos);
}

TEST(KeyDescriptionTest, DamagedBytesAreSafe) {
  const std::string canonical = RichRequest().Key().canonical;
  EXPECT_EQ(DescribeKey("")[0].first, "damaged");
  for (size_t size = 0; size < canonical.size(); ++size) {
    const auto fields = DescribeKey(std::string_view(canonical).substr(0, size));
    if (size > 1) {
      EXPECT_FALSE(fields.empty());
    }
    SketchKey(std::string_view(canonical).substr(0, size));
  }
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = canonical;
    for (int changes = 0; changes < 4; ++changes) bytes[random() % bytes.size()] = static_cast<char>(random());
    DescribeKey(bytes);
    SketchKey(bytes);
  }
}

TEST(KeySketchTest, NearGraphsAreNear) {
  const auto sketch = [](const SampleRequest& request) { return SketchKey(request.Key().canonical); };
  const SampleRequest request = LargeRequest(200);
  EXPECT_EQ(SketchSimilarity(sketch(request), sketch(request)), 1000);

  SampleRequest other_target = request;
  other_target.target.set_isa("znver4");
  SampleRequest one_more_node = LargeRequest(201);
  SampleRequest other_graph = RichRequest();
  other_graph.tenant = request.tenant;
  SampleRequest other_tenant = request;
  other_tenant.tenant = "team-b";

  EXPECT_LE(sketch(request).size(), 256u);
  EXPECT_GT(SketchSimilarity(sketch(request), sketch(other_target)), 900);
  EXPECT_GT(SketchSimilarity(sketch(request), sketch(one_more_node)),
            SketchSimilarity(sketch(request), sketch(other_graph)));
  EXPECT_GT(SketchSimilarity(sketch(request), sketch(other_graph)), 0) << "better than nothing";
  EXPECT_EQ(SketchSimilarity(sketch(request), sketch(other_tenant)), 0) << "tenants do not see each other";
  EXPECT_EQ(SketchSimilarity(sketch(request), "foreign label"), 0);
}

}  // namespace
}  // namespace stepone
