#include "proto/digest.h"

#include <openssl/evp.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace stepone {
namespace {

// SHA-256 of memory can only fail when the process has no memory or no crypto library left: nothing can go on then.
void Require(bool ok) {
  if (ok) return;
  std::fputs("stepone: SHA-256 is not available\n", stderr);
  std::abort();
}

// Fetched once: looking an algorithm up takes longer than hashing a small input.
const EVP_MD* Algorithm() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return algorithm;
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string Digest::Hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * kSize);
  for (uint8_t byte : bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

std::optional<Digest> Digest::FromRaw(std::string_view raw) {
  if (raw.size() != kSize) return std::nullopt;
  Digest digest;
  std::memcpy(digest.bytes.data(), raw.data(), kSize);
  return digest;
}

std::optional<Digest> Digest::FromHex(std::string_view hex) {
  if (hex.size() != 2 * kSize) return std::nullopt;
  Digest digest;
  for (size_t i = 0; i < kSize; ++i) {
    const int high = HexValue(hex[2 * i]);
    const int low = HexValue(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest.bytes[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return digest;
}

Digest Sha256(std::string_view data) {
  Digest digest;
  Require(EVP_Digest(data.data(), data.size(), digest.bytes.data(), nullptr, Algorithm(), nullptr) == 1);
  return digest;
}

struct Hasher::Context {
  Context() : evp(EVP_MD_CTX_new()) { Require(evp != nullptr && EVP_DigestInit_ex(evp, Algorithm(), nullptr) == 1); }
  ~Context() { EVP_MD_CTX_free(evp); }
  EVP_MD_CTX* evp;
};

Hasher::Hasher() : context_(std::make_unique<Context>()) {}
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::Update(std::string_view data) { Require(EVP_DigestUpdate(context_->evp, data.data(), data.size()) == 1); }

Digest Hasher::Finish() {
  Digest digest;
  Require(EVP_DigestFinal_ex(context_->evp, digest.bytes.data(), nullptr) == 1);
  return digest;
}

}  // namespace stepone
