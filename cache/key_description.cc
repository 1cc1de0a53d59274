// What canonical bytes mean to people: descriptions, differences, and sketches to find near neighbours.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "cache/cache_key.h"
#include "cache/canonical_form.h"
#include "proto/str_cat.h"

namespace stepone {
namespace {

using canonical::Item;
using canonical::Reader;
using canonical::Tag;
using canonical::Type;

using Description = std::vector<std::pair<std::string, std::string>>;

constexpr size_t kMaxTextBytes = 200;

// Enum names without their common prefix, in lower case: DTYPE_FLOAT32 -> float32.
std::string ShortName(const std::string& name, size_t prefix, uint64_t number) {
  if (name.size() <= prefix) return StrCat(number);
  std::string result = name.substr(prefix);
  for (char& c : result) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string ValueText(const Item& item) {
  switch (item.info->type) {
    case Type::kInt:
      return StrCat(item.int_value);
    case Type::kFloat:
      return StrCat(item.float_value, " (bits ", absl::Hex(std::bit_cast<uint64_t>(item.float_value), absl::kZeroPad16),
                    ")");
    case Type::kText:
    case Type::kInterned:
      return absl::CHexEscape(ToAbsl(item.text.substr(0, kMaxTextBytes)));
    case Type::kDigest:
      return absl::BytesToHexString(ToAbsl(item.text));
    default:
      break;
  }
  const int number = static_cast<int>(item.uint_value);
  switch (item.tag) {
    case Tag::kDtype:
    case Tag::kArgumentDtype:
      return ShortName(v1::DType_Name(number), std::strlen("DTYPE_"), item.uint_value);
    case Tag::kRole:
      return ShortName(v1::Role_Name(number), std::strlen("ROLE_"), item.uint_value);
    case Tag::kMode:
      return ShortName(v1::Mode_Name(number), std::strlen("MODE_"), item.uint_value);
    case Tag::kValue:
      return StrCat("%", item.uint_value);
    default:
      return StrCat(item.uint_value);
  }
}

// Names items by their place in the tree of groups.
class Describer {
 public:
  explicit Describer(std::string_view canonical) : reader_(canonical.substr(std::min<size_t>(1, canonical.size()))) {
    frames_.push_back({});
    if (canonical.empty()) {
      damaged_ = true;
    } else {
      result_.emplace_back("key_version", StrCat(static_cast<int>(static_cast<uint8_t>(canonical.front()))));
    }
  }

  Description Run() && {
    Item item;
    while (!damaged_ && reader_.Next(item)) Add(item);
    if (damaged_ || reader_.damaged() || frames_.size() != 1) return {{"damaged", "these are no canonical key bytes"}};
    return std::move(result_);
  }

 private:
  struct Frame {
    std::string path;
    absl::flat_hash_map<const void*, int> counts;  // by name
  };

  void Add(const Item& item) {
    if (item.info->type == Type::kEnd) {
      if (frames_.size() == 1) {
        damaged_ = true;
      } else {
        frames_.pop_back();
      }
      return;
    }
    Frame& frame = frames_.back();
    std::string path = frame.path.empty() ? item.info->name : StrCat(frame.path, ".", item.info->name);
    if (item.info->repeated) absl::StrAppend(&path, "[", frame.counts[CountKey(item)]++, "]");
    if (item.info->type == Type::kGroup) {
      frames_.push_back({std::move(path), {}});
    } else {
      result_.emplace_back(std::move(path), ValueText(item));
    }
  }

  // Numbers and expressions of one list are counted together.
  static const void* CountKey(const Item& item) {
    switch (item.tag) {
      case Tag::kSizeExpr:
        return canonical::FindTag(static_cast<uint8_t>(Tag::kSize));
      case Tag::kStrideExpr:
        return canonical::FindTag(static_cast<uint8_t>(Tag::kStride));
      case Tag::kIntegerExpr:
        return canonical::FindTag(static_cast<uint8_t>(Tag::kInteger));
      default:
        return item.info;
    }
  }

  Reader reader_;
  std::vector<Frame> frames_;
  Description result_;
  bool damaged_ = false;
};

// A sketch: hashes of the parts that are equal or not, then a MinHash signature of the multiset of ops and types.
constexpr size_t kPartCount = 5;  // tenant, fingerprint, target, options, inputs
constexpr size_t kSignatureSize = 24;
constexpr size_t kPartBytes = 8;
constexpr size_t kSlotBytes = 2;
constexpr size_t kSketchBytes = kPartCount * kPartBytes + kSignatureSize * kSlotBytes;
static_assert(kSketchBytes <= 256);

uint64_t Mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCDull;
  x ^= x >> 33;
  x *= 0xC4CEB9FE1A85EC53ull;
  return x ^ (x >> 33);
}

uint64_t Hash(uint64_t seed, std::string_view bytes) {
  uint64_t hash = seed ^ (bytes.size() * 0x9E3779B97F4A7C15ull);
  for (char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
  return Mix(hash);
}

class Sketcher {
 public:
  std::string Run(std::string_view canonical) {
    slots_.fill(UINT64_MAX);
    Reader reader(canonical.substr(std::min<size_t>(1, canonical.size())));
    Item item;
    while (reader.Next(item)) Add(item);
    std::string sketch;
    for (uint64_t part : parts_) Append(sketch, part, kPartBytes);
    for (uint64_t slot : slots_) Append(sketch, slot, kSlotBytes);
    return sketch;
  }

 private:
  enum Part { kTenant, kFingerprint, kTarget, kOptions, kInputs };

  void Add(const Item& item) {
    if (item.tag == Tag::kTenant) parts_[kTenant] = Hash(1, item.text);
    if (item.tag == Tag::kFingerprint) parts_[kFingerprint] = Hash(1, item.text);
    if (item.tag == Tag::kTarget) part_ = kTarget;
    if (item.tag == Tag::kOptions) part_ = kOptions;
    if (item.tag == Tag::kGraph) part_ = kInputs;
    if (item.tag == Tag::kNode) {
      part_.reset();
      EndNode();
    }
    if (item.tag == Tag::kOutput) EndNode();
    if (item.tag == Tag::kTrace) part_.reset();
    if (item.tag == Tag::kTraceLine) {
      node_ = Hash(node_, item.text);
      EndNode();
    }
    if (part_) parts_[*part_] = Hash(parts_[*part_], item.bytes);
    // A node is known by its op and the types of its results: numbers of values shift when a node is added or removed.
    const bool told_apart_by = item.tag == Tag::kOp || item.tag == Tag::kDtype || item.tag == Tag::kSize ||
                               item.tag == Tag::kSizeExpr || item.tag == Tag::kFloat || item.tag == Tag::kInteger;
    if (!part_ && told_apart_by) node_ = Hash(node_, item.bytes);
  }

  void EndNode() {
    if (node_ == 0) return;
    const uint64_t repeat = seen_[node_]++;
    const uint64_t element = Mix(node_ + repeat);
    for (size_t i = 0; i < kSignatureSize; ++i) {
      slots_[i] = std::min(slots_[i], Mix(element ^ ((i + 1) * 0x9E3779B97F4A7C15ull)));
    }
    node_ = 0;
  }

  static void Append(std::string& out, uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  }

  std::array<uint64_t, kPartCount> parts_{};
  std::array<uint64_t, kSignatureSize> slots_{};
  std::optional<Part> part_;
  uint64_t node_ = 0;
  absl::flat_hash_map<uint64_t, uint64_t> seen_;
};

}  // namespace

Description DescribeKey(std::string_view canonical) { return Describer(canonical).Run(); }

std::vector<v1::FieldDifference> DiffKeys(std::string_view requested, std::string_view nearest, size_t limit) {
  const Description left = DescribeKey(requested);
  const Description right = DescribeKey(nearest);
  absl::flat_hash_map<absl::string_view, absl::string_view> right_by_field, left_fields;
  for (const auto& [field, value] : right) right_by_field.emplace(field, value);
  for (const auto& [field, value] : left) left_fields.emplace(field, value);

  std::vector<v1::FieldDifference> differences;
  size_t left_out = 0;
  const auto add = [&](const std::string& field, absl::string_view mine, absl::string_view theirs) {
    if (differences.size() >= limit) {
      ++left_out;
      return;
    }
    v1::FieldDifference& difference = differences.emplace_back();
    difference.set_field(field);
    difference.set_requested(std::string(mine));
    difference.set_nearest(std::string(theirs));
  };
  for (const auto& [field, value] : left) {
    const auto other = right_by_field.find(field);
    if (other == right_by_field.end()) {
      add(field, value, "(absent)");
    } else if (other->second != value) {
      add(field, value, other->second);
    }
  }
  for (const auto& [field, value] : right) {
    if (!left_fields.contains(field)) add(field, "(absent)", value);
  }
  if (left_out > 0) {
    v1::FieldDifference& more = differences.emplace_back();
    more.set_field("...");
    more.set_requested(StrCat(left_out, " more fields differ"));
  }
  return differences;
}

std::string SketchKey(std::string_view canonical) { return Sketcher().Run(canonical); }

int SketchSimilarity(std::string_view a, std::string_view b) {
  if (a.size() != kSketchBytes || b.size() != kSketchBytes) return 0;
  if (a.substr(0, kPartBytes) != b.substr(0, kPartBytes)) return 0;
  if (a == b) return 1000;
  // The graph's body counts most: whoever asks has the same model and wonders which circumstance differs.
  static constexpr int kWeights[kPartCount] = {1, 40, 40, 40, 120};
  int score = 0;
  for (size_t part = 0; part < kPartCount; ++part) {
    if (a.substr(part * kPartBytes, kPartBytes) == b.substr(part * kPartBytes, kPartBytes)) score += kWeights[part];
  }
  for (size_t slot = 0; slot < kSignatureSize; ++slot) {
    const size_t at = kPartCount * kPartBytes + slot * kSlotBytes;
    if (a.substr(at, kSlotBytes) == b.substr(at, kSlotBytes)) score += 30;
  }
  return score;  // at most 241 + 720
}

}  // namespace stepone
