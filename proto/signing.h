// Ed25519 signatures over artifacts and bundles.
#ifndef STEPONE_PROTO_SIGNING_H_
#define STEPONE_PROTO_SIGNING_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stepone/v1/artifact.pb.h"
#include "stepone/v1/bundle.pb.h"

namespace stepone {

using Signatures = google::protobuf::RepeatedPtrField<v1::Signature>;

// A server's private key. Thread-safe.
class SigningKey {
 public:
  // Reads a PEM file (PKCS#8), or creates it with mode 0600 when it does not exist. Two processes that create it at the
  // same time end up with the same key. kPermissionDenied when others may read the file.
  static absl::StatusOr<SigningKey> LoadOrCreate(const std::string& path);
  static SigningKey Generate();

  SigningKey(SigningKey&&) noexcept;
  SigningKey& operator=(SigningKey&&) noexcept;
  ~SigningKey();

  const std::string& public_key() const { return public_key_; }  // 32 raw bytes
  std::string key_id() const;                                    // 16 hexadecimal digits

  // Fills in `signatures` of what is complete otherwise.
  void Sign(v1::SignedManifest& manifest) const;
  void Sign(v1::SignedBundle& bundle) const;

 private:
  struct Impl;
  explicit SigningKey(std::unique_ptr<Impl> impl, std::string public_key);
  void AddSignature(std::string_view payload, Signatures& signatures) const;
  std::unique_ptr<Impl> impl_;
  std::string public_key_;
};

// The bytes that are signed: a version byte, then length-prefixed graph key, tenant, digest of the manifest and
// creation time, so that a good artifact can't be replayed under another key or tenant.
std::string SignedPayload(const v1::SignedManifest& manifest);

// Likewise of a bundle, whose bytes hold its key and tenant: a version byte of its own, digest and creation time.
std::string SignedPayload(const v1::SignedBundle& bundle);

// Public keys that a client trusts. Thread-compatible.
class TrustedKeys {
 public:
  // `public_key`: 32 raw bytes; kInvalidArgument otherwise.
  absl::Status Add(std::string_view public_key);
  // OK when at least one signature is by a trusted key and is right; kPermissionDenied otherwise, saying who signed.
  absl::Status Verify(const v1::SignedManifest& manifest) const;
  absl::Status Verify(const v1::SignedBundle& bundle) const;
  bool empty() const { return keys_.empty(); }

 private:
  absl::Status Verify(std::string_view payload, const Signatures& signatures, std::string_view what) const;

  std::vector<std::string> keys_;
};

// Key id of a raw public key: the first 8 bytes of its SHA-256 in hexadecimal.
std::string KeyId(std::string_view public_key);

}  // namespace stepone

#endif  // STEPONE_PROTO_SIGNING_H_
