// The encoding of canonical key bytes: a version byte, then items. An item is a tag byte and what the tag's type says.
// Internal to the cache; whoever wants to know what a key holds calls DescribeKey (cache_key.h).
#ifndef STEPONE_CACHE_CANONICAL_FORM_H_
#define STEPONE_CACHE_CANONICAL_FORM_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace stepone::canonical {

enum class Type : uint8_t {
  kEnd,       // closes the innermost group
  kGroup,     // opens a group
  kUint,      // varint
  kInt,       // zigzag varint
  kFloat,     // bit pattern of a double, 8 bytes, little-endian
  kText,      // varint length, bytes
  kInterned,  // varint number of a text in order of first occurrence; length and bytes follow the first time
  kDigest,    // 32 bytes
};

// Numbers are hashed and stored: a change of any of them needs a new kKeyVersion.
enum class Tag : uint8_t {
  kEnd = 0,
  kFingerprint = 1,
  kTenant = 2,
  kTarget = 3,
  kDeviceType = 4,
  kIsa = 5,
  kFeature = 6,
  kVectorBytes = 7,
  kL1dBytes = 8,
  kL2Bytes = 9,
  kOptions = 10,
  kMode = 11,
  kBackend = 12,
  kDeterministic = 13,
  kFallbackRandom = 14,
  kDisableFusion = 15,
  kFrameworkVersion = 16,
  kBackendOption = 17,
  kOptionName = 18,
  kOptionValue = 19,
  kGraph = 20,
  kRole = 21,
  kSymbol = 22,
  kHint = 23,
  kMin = 24,
  kMax = 25,
  kInput = 26,
  kStaticInput = 27,
  kNode = 28,
  kOp = 29,
  kArgument = 30,
  kArgumentName = 31,
  kResult = 32,
  kUnusedResult = 33,
  kResultsAreList = 34,
  kResultAlias = 35,
  kMutated = 36,
  kUsesRng = 37,
  kOutput = 38,
  kDefinition = 39,  // a constant, or a value that nothing defines, where it is first used
  kConstant = 40,
  kStrayConstant = 41,
  kDtype = 42,
  kSize = 43,
  kSizeExpr = 44,
  kStride = 45,
  kStrideExpr = 46,
  kStorageOffset = 47,
  kStorageOffsetExpr = 48,
  kDevice = 49,
  kOtherDtype = 50,
  kLayout = 51,
  kSymInt = 52,
  kSymIntExpr = 53,
  kHostScalar = 54,
  kUntyped = 55,
  kValue = 56,
  kInvalidValue = 57,
  kNone = 58,
  kValueList = 59,
  kUnmarkedValue = 60,
  kExtraMarks = 61,
  kInteger = 62,
  kIntegerExpr = 63,
  kFloat = 64,
  kBool = 65,
  kString = 66,
  kProcessGroup = 67,
  kIntList = 68,
  kFloatList = 69,
  kBoolList = 70,
  kStringList = 71,
  kArgumentDtype = 72,
  kMemoryFormat = 73,
  kComplex = 74,
  kImaginary = 75,
  kTrace = 76,
  kTraceLine = 77,
};

struct TagInfo {
  const char* name;  // as DescribeKey shows it
  Type type;
  bool repeated;  // shown with its position among the items of that name in the group
};

// Null for a number that is no tag.
const TagInfo* FindTag(uint8_t tag);

// Appends items to a string. Texts given to Interned must stay valid while the writer lives.
class Writer {
 public:
  void Version(uint8_t version) { Byte(version); }
  void Begin(Tag tag) { Byte(static_cast<uint8_t>(tag)); }
  void End() { Byte(0); }
  void Uint(Tag tag, uint64_t value);
  void Int(Tag tag, int64_t value);
  void Float(Tag tag, double value);
  void Text(Tag tag, std::string_view text);
  void Interned(Tag tag, std::string_view text);
  // REQUIRES: raw has 32 bytes.
  void DigestOf(Tag tag, std::string_view raw);

  std::string Take() && {
    out_.resize(size_);
    return std::move(out_);
  }

 private:
  // Room for one item without its text.
  static constexpr size_t kItemBytes = 16;

  // Bytes are written one by one, so growing must be rare and its check short.
  void Room(size_t bytes) {
    if (out_.size() - size_ < bytes) out_.resize(2 * out_.size() + bytes + 4096);
  }
  void Byte(uint8_t byte) {
    Room(kItemBytes);
    out_[size_++] = static_cast<char>(byte);
  }
  void Varint(uint64_t value);
  void Bytes(std::string_view bytes);

  std::string out_;
  size_t size_ = 0;  // bytes of out_ that are written
  absl::flat_hash_map<absl::string_view, uint32_t> interned_;
};

struct Item {
  Tag tag = Tag::kEnd;
  const TagInfo* info = nullptr;
  uint64_t uint_value = 0;
  int64_t int_value = 0;
  double float_value = 0;
  std::string_view text;   // into the bytes that are read
  std::string_view bytes;  // the item's encoding, except that an interned text stands for its number
};

// Reads items back. Safe on any bytes.
class Reader {
 public:
  // REQUIRES: `bytes` (without the version byte) outlives the reader and its items.
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  // False at the end, and when the bytes are damaged.
  bool Next(Item& item);
  bool damaged() const { return damaged_; }

 private:
  bool ReadVarint(uint64_t& value);
  bool ReadBytes(uint64_t size, std::string_view& bytes);
  bool ReadPayload(Item& item);

  std::string_view rest_;
  std::vector<std::string_view> interned_;
  bool damaged_ = false;
};

}  // namespace stepone::canonical

#endif  // STEPONE_CACHE_CANONICAL_FORM_H_
