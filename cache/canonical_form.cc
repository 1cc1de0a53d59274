#include "cache/canonical_form.h"

#include <bit>
#include <cstring>
#include <iterator>

#include "proto/digest.h"
#include "proto/str_cat.h"

namespace stepone::canonical {
namespace {

constexpr TagInfo kTags[] = {
    {"", Type::kEnd, false},                       // kEnd
    {"compiler_fingerprint", Type::kText, false},  // kFingerprint
    {"tenant", Type::kText, false},                // kTenant
    {"target", Type::kGroup, false},               // kTarget
    {"device_type", Type::kText, false},           // kDeviceType
    {"isa", Type::kText, false},                   // kIsa
    {"features", Type::kText, true},               // kFeature
    {"vector_bytes", Type::kUint, false},          // kVectorBytes
    {"l1d_bytes", Type::kUint, false},             // kL1dBytes
    {"l2_bytes", Type::kUint, false},              // kL2Bytes
    {"options", Type::kGroup, false},              // kOptions
    {"mode", Type::kUint, false},                  // kMode
    {"backend", Type::kText, false},               // kBackend
    {"deterministic", Type::kUint, false},         // kDeterministic
    {"fallback_random", Type::kUint, false},       // kFallbackRandom
    {"disable_fusion", Type::kUint, false},        // kDisableFusion
    {"framework_version", Type::kText, false},     // kFrameworkVersion
    {"backend_options", Type::kGroup, true},       // kBackendOption
    {"name", Type::kText, false},                  // kOptionName
    {"value", Type::kText, false},                 // kOptionValue
    {"graph", Type::kGroup, false},                // kGraph
    {"role", Type::kUint, false},                  // kRole
    {"symbols", Type::kGroup, true},               // kSymbol
    {"hint", Type::kInt, false},                   // kHint
    {"min", Type::kInt, false},                    // kMin
    {"max", Type::kInt, false},                    // kMax
    {"inputs", Type::kGroup, true},                // kInput
    {"static_inputs", Type::kUint, true},          // kStaticInput
    {"nodes", Type::kGroup, true},                 // kNode
    {"op", Type::kInterned, false},                // kOp
    {"arguments", Type::kGroup, true},             // kArgument
    {"name", Type::kInterned, false},              // kArgumentName
    {"results", Type::kGroup, true},               // kResult
    {"unused", Type::kUint, false},                // kUnusedResult
    {"results_are_list", Type::kUint, false},      // kResultsAreList
    {"result_aliases", Type::kUint, true},         // kResultAlias
    {"mutated_values", Type::kUint, true},         // kMutated
    {"uses_rng", Type::kUint, false},              // kUsesRng
    {"outputs", Type::kGroup, true},               // kOutput
    {"definition", Type::kGroup, true},            // kDefinition
    {"constant_sha256", Type::kDigest, false},     // kConstant
    {"stray_constants", Type::kGroup, true},       // kStrayConstant
    {"dtype", Type::kUint, false},                 // kDtype
    {"sizes", Type::kInt, true},                   // kSize
    {"sizes", Type::kText, true},                  // kSizeExpr
    {"strides", Type::kInt, true},                 // kStride
    {"strides", Type::kText, true},                // kStrideExpr
    {"storage_offset", Type::kInt, false},         // kStorageOffset
    {"storage_offset", Type::kText, false},        // kStorageOffsetExpr
    {"device", Type::kInterned, false},            // kDevice
    {"other_dtype", Type::kText, false},           // kOtherDtype
    {"layout", Type::kText, false},                // kLayout
    {"sym_int", Type::kInt, false},                // kSymInt
    {"sym_int", Type::kText, false},               // kSymIntExpr
    {"host_scalar", Type::kUint, false},           // kHostScalar
    {"untyped", Type::kUint, false},               // kUntyped
    {"value", Type::kUint, true},                  // kValue
    {"invalid_value", Type::kUint, true},          // kInvalidValue
    {"none", Type::kUint, true},                   // kNone
    {"value_list", Type::kGroup, false},           // kValueList
    {"unmarked_value", Type::kUint, true},         // kUnmarkedValue
    {"extra_marks", Type::kUint, false},           // kExtraMarks
    {"int", Type::kInt, true},                     // kInteger
    {"int", Type::kText, true},                    // kIntegerExpr
    {"float", Type::kFloat, true},                 // kFloat
    {"bool", Type::kUint, true},                   // kBool
    {"string", Type::kInterned, true},             // kString
    {"process_group", Type::kUint, false},         // kProcessGroup
    {"int_list", Type::kGroup, false},             // kIntList
    {"float_list", Type::kGroup, false},           // kFloatList
    {"bool_list", Type::kGroup, false},            // kBoolList
    {"string_list", Type::kGroup, false},          // kStringList
    {"dtype", Type::kUint, false},                 // kArgumentDtype
    {"memory_format", Type::kInterned, false},     // kMemoryFormat
    {"complex", Type::kGroup, false},              // kComplex
    {"imaginary", Type::kFloat, false},            // kImaginary
    {"trace", Type::kGroup, false},                // kTrace
    {"line", Type::kText, true},                   // kTraceLine
};
static_assert(std::size(kTags) == static_cast<size_t>(Tag::kTraceLine) + 1);

}  // namespace

const TagInfo* FindTag(uint8_t tag) { return tag < std::size(kTags) ? &kTags[tag] : nullptr; }

void Writer::Varint(uint64_t value) {
  Room(kItemBytes);
  char* at = out_.data() + size_;
  while (value >= 0x80) {
    *at++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *at++ = static_cast<char>(value);
  size_ = static_cast<size_t>(at - out_.data());
}

void Writer::Bytes(std::string_view bytes) {
  Room(bytes.size());
  std::memcpy(out_.data() + size_, bytes.data(), bytes.size());
  size_ += bytes.size();
}

void Writer::Uint(Tag tag, uint64_t value) {
  Begin(tag);
  Varint(value);
}

void Writer::Int(Tag tag, int64_t value) {
  Begin(tag);
  Varint((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
}

void Writer::Float(Tag tag, double value) {
  Begin(tag);
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  for (int shift = 0; shift < 64; shift += 8) Byte(static_cast<uint8_t>(bits >> shift));
}

void Writer::Text(Tag tag, std::string_view text) {
  Begin(tag);
  Varint(text.size());
  Bytes(text);
}

void Writer::Interned(Tag tag, std::string_view text) {
  Begin(tag);
  const auto [it, fresh] = interned_.try_emplace(ToAbsl(text), static_cast<uint32_t>(interned_.size()));
  Varint(it->second);
  if (!fresh) return;
  Varint(text.size());
  Bytes(text);
}

void Writer::DigestOf(Tag tag, std::string_view raw) {
  Begin(tag);
  Bytes(raw);
}

bool Reader::ReadVarint(uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool Reader::ReadBytes(uint64_t size, std::string_view& bytes) {
  if (size > rest_.size()) return false;
  bytes = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return true;
}

bool Reader::ReadPayload(Item& item) {
  uint64_t size = 0;
  switch (item.info->type) {
    case Type::kEnd:
    case Type::kGroup:
      return true;
    case Type::kUint:
      return ReadVarint(item.uint_value);
    case Type::kInt: {
      uint64_t zigzag = 0;
      if (!ReadVarint(zigzag)) return false;
      item.int_value = static_cast<int64_t>((zigzag >> 1) ^ (~(zigzag & 1) + 1));
      return true;
    }
    case Type::kFloat: {
      if (!ReadBytes(8, item.text)) return false;
      uint64_t bits = 0;
      for (int i = 0; i < 8; ++i) bits |= static_cast<uint64_t>(static_cast<uint8_t>(item.text[i])) << (8 * i);
      item.float_value = std::bit_cast<double>(bits);
      return true;
    }
    case Type::kText:
      return ReadVarint(size) && ReadBytes(size, item.text);
    case Type::kDigest:
      return ReadBytes(Digest::kSize, item.text);
    case Type::kInterned: {
      uint64_t number = 0;
      if (!ReadVarint(number) || number > interned_.size()) return false;
      if (number == interned_.size()) {
        if (!ReadVarint(size) || !ReadBytes(size, item.text)) return false;
        interned_.push_back(item.text);
      }
      item.text = interned_[number];
      return true;
    }
  }
  return false;
}

bool Reader::Next(Item& item) {
  if (rest_.empty() || damaged_) return false;
  const std::string_view start = rest_;
  item = Item();
  item.info = FindTag(static_cast<uint8_t>(rest_.front()));
  item.tag = static_cast<Tag>(rest_.front());
  rest_.remove_prefix(1);
  if (item.info == nullptr || !ReadPayload(item)) {
    damaged_ = true;
    return false;
  }
  item.bytes = item.info->type == Type::kInterned ? item.text : start.substr(0, start.size() - rest_.size());
  return true;
}

}  // namespace stepone::canonical
