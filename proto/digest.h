// SHA-256 digests: the identity of every stored byte sequence.
#ifndef STEPONE_PROTO_DIGEST_H_
#define STEPONE_PROTO_DIGEST_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace stepone {

// A SHA-256 value. Regular type; ordered by its bytes.
struct Digest {
  static constexpr size_t kSize = 32;
  std::array<uint8_t, kSize> bytes{};

  auto operator<=>(const Digest&) const = default;

  // 64 lower-case hexadecimal digits.
  std::string Hex() const;
  // The 32 raw bytes, as they stand in protobuf fields.
  std::string Raw() const { return std::string(reinterpret_cast<const char*>(bytes.data()), kSize); }

  // Empty when `raw` does not have 32 bytes.
  static std::optional<Digest> FromRaw(std::string_view raw);
  // Empty when `hex` is not 64 hexadecimal digits.
  static std::optional<Digest> FromHex(std::string_view hex);

  template <typename H>
  friend H AbslHashValue(H h, const Digest& d) {
    return H::combine(std::move(h), d.bytes);
  }
};

// For std::unordered_map; a digest is uniformly distributed, so its first bytes do.
struct DigestHash {
  size_t operator()(const Digest& d) const {
    size_t h;
    std::memcpy(&h, d.bytes.data(), sizeof h);
    return h;
  }
};

Digest Sha256(std::string_view data);

// Hashes a stream of bytes. Not thread-safe.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void Update(std::string_view data);
  // REQUIRES: called once, last.
  Digest Finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace stepone

#endif  // STEPONE_PROTO_DIGEST_H_
