#include "proto/signing.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_join.h"
#include "proto/digest.h"
#include "proto/str_cat.h"

namespace stepone {
namespace {

// First bytes of what is signed. They tell kinds apart, so that a signature of one never passes for one of another.
constexpr uint8_t kPayloadVersion = 1;
constexpr uint8_t kBundlePayloadVersion = 0x81;
constexpr size_t kPublicKeyBytes = 32;
constexpr size_t kSignatureBytes = 64;
constexpr size_t kMaxKeyFileBytes = 16 * 1024;

template <typename T, void (*kFree)(T*)>
struct Free {
  void operator()(T* p) const { kFree(p); }
};
using KeyPtr = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY, EVP_PKEY_free>>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, Free<EVP_MD_CTX, EVP_MD_CTX_free>>;
struct FreeBio {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using BioPtr = std::unique_ptr<BIO, FreeBio>;

void Require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "stepone: %s failed in the crypto library\n", what);
  std::abort();
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status FileError(std::string_view what, const std::string& path) {
  return absl::ErrnoToStatus(errno, StrCat("signing key: cannot ", what, " ", path));
}

std::string RawPublicKey(const EVP_PKEY* key) {
  std::string raw(kPublicKeyBytes, '\0');
  size_t size = raw.size();
  Require(EVP_PKEY_get_raw_public_key(key, reinterpret_cast<unsigned char*>(raw.data()), &size) == 1 &&
              size == kPublicKeyBytes,
          "reading a public key");
  return raw;
}

std::string ToPem(const EVP_PKEY* key) {
  BioPtr bio(BIO_new(BIO_s_mem()));
  Require(bio && PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1,
          "writing a private key");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

KeyPtr FromPem(std::string_view pem) {
  BioPtr bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  // An empty password keeps the library from asking on the terminal for an encrypted key.
  return KeyPtr(bio ? PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, const_cast<char*>("")) : nullptr);
}

// Empty result: the file does not exist.
absl::StatusOr<KeyPtr> ReadKeyFile(const std::string& path) {
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    if (errno == ENOENT) return KeyPtr();
    return FileError("open", path);
  }
  struct stat info;
  if (fstat(file.get(), &info) != 0) return FileError("examine", path);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(StrCat("signing key: not a file: ", path));
  if ((info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(StrCat("signing key: others have access to ", path, "; its mode must be 0600"));
  }
  std::string pem(kMaxKeyFileBytes, '\0');
  const ssize_t size = read(file.get(), pem.data(), pem.size());
  if (size < 0) return FileError("read", path);
  KeyPtr key = FromPem(std::string_view(pem.data(), static_cast<size_t>(size)));
  if (!key || EVP_PKEY_get_id(key.get()) != EVP_PKEY_ED25519) {
    return absl::InvalidArgumentError(StrCat("signing key: no ed25519 private key (PEM, PKCS#8) in ", path));
  }
  return key;
}

absl::Status WriteAll(int fd, std::string_view data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t written = write(fd, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return FileError("write", path);
    data.remove_prefix(static_cast<size_t>(written));
  }
  if (fsync(fd) != 0) return FileError("write", path);
  return absl::OkStatus();
}

// Publishes a complete file under `path` unless there is one already: whoever comes second reads the first one's key.
absl::Status CreateKeyFile(const std::string& path, std::string_view pem) {
  std::string temporary = StrCat(path, ".XXXXXX");
  FileDescriptor file(mkostemp(temporary.data(), O_CLOEXEC));  // created with mode 0600
  if (file.get() < 0) return FileError("create", path);
  absl::Status status = WriteAll(file.get(), pem, path);
  if (status.ok() && link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST) status = FileError("create", path);
  unlink(temporary.c_str());
  return status;
}

void AppendField(std::string& payload, std::string_view field) {
  const uint32_t size = static_cast<uint32_t>(field.size());
  for (int shift = 0; shift < 32; shift += 8) payload.push_back(static_cast<char>((size >> shift) & 0xFF));
  payload.append(field);
}

std::string TimeBytes(int64_t unix_ms) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>((static_cast<uint64_t>(unix_ms) >> (8 * i)) & 0xFF);
  return bytes;
}

bool VerifyOne(std::string_view public_key, std::string_view payload, std::string_view signature) {
  if (signature.size() != kSignatureBytes) return false;
  KeyPtr key(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr,
                                         reinterpret_cast<const unsigned char*>(public_key.data()), public_key.size()));
  DigestContext context(EVP_MD_CTX_new());
  return key && context && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()), signature.size(),
                          reinterpret_cast<const unsigned char*>(payload.data()), payload.size()) == 1;
}

}  // namespace

struct SigningKey::Impl {
  KeyPtr key;
};

SigningKey::SigningKey(std::unique_ptr<Impl> impl, std::string public_key)
    : impl_(std::move(impl)), public_key_(std::move(public_key)) {}
SigningKey::SigningKey(SigningKey&&) noexcept = default;
SigningKey& SigningKey::operator=(SigningKey&&) noexcept = default;
SigningKey::~SigningKey() = default;

SigningKey SigningKey::Generate() {
  KeyPtr key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  Require(key != nullptr, "making an ed25519 key");
  std::string public_key = RawPublicKey(key.get());
  return SigningKey(std::make_unique<Impl>(Impl{std::move(key)}), std::move(public_key));
}

absl::StatusOr<SigningKey> SigningKey::LoadOrCreate(const std::string& path) {
  absl::StatusOr<KeyPtr> key = ReadKeyFile(path);
  if (!key.ok()) return key.status();
  if (*key == nullptr) {
    const SigningKey fresh = Generate();
    absl::Status created = CreateKeyFile(path, ToPem(fresh.impl_->key.get()));
    if (!created.ok()) return created;
    key = ReadKeyFile(path);
    if (!key.ok()) return key.status();
    if (*key == nullptr) return absl::AbortedError(StrCat("signing key: ", path, " vanished"));
  }
  std::string public_key = RawPublicKey(key->get());
  return SigningKey(std::make_unique<Impl>(Impl{*std::move(key)}), std::move(public_key));
}

std::string SigningKey::key_id() const { return KeyId(public_key_); }

void SigningKey::Sign(v1::SignedManifest& manifest) const {
  AddSignature(SignedPayload(manifest), *manifest.mutable_signatures());
}

void SigningKey::Sign(v1::SignedBundle& bundle) const {
  AddSignature(SignedPayload(bundle), *bundle.mutable_signatures());
}

void SigningKey::AddSignature(std::string_view payload, Signatures& signatures) const {
  std::string signature(kSignatureBytes, '\0');
  size_t size = signature.size();
  DigestContext context(EVP_MD_CTX_new());
  Require(context && EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, impl_->key.get()) == 1 &&
              EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                             reinterpret_cast<const unsigned char*>(payload.data()), payload.size()) == 1,
          "signing");
  const std::string id = key_id();
  signatures.erase(
      std::remove_if(signatures.begin(), signatures.end(), [&id](const v1::Signature& s) { return s.signer() == id; }),
      signatures.end());
  v1::Signature* added = signatures.Add();
  added->set_signer(id);
  added->set_ed25519(std::move(signature));
}

std::string SignedPayload(const v1::SignedManifest& manifest) {
  std::string payload(1, static_cast<char>(kPayloadVersion));
  AppendField(payload, manifest.graph_key());
  AppendField(payload, manifest.tenant());
  AppendField(payload, Sha256(manifest.manifest()).Raw());
  AppendField(payload, TimeBytes(manifest.created_unix_ms()));
  return payload;
}

std::string SignedPayload(const v1::SignedBundle& bundle) {
  std::string payload(1, static_cast<char>(kBundlePayloadVersion));
  AppendField(payload, Sha256(bundle.bundle()).Raw());
  AppendField(payload, TimeBytes(bundle.created_unix_ms()));
  return payload;
}

absl::Status TrustedKeys::Add(std::string_view public_key) {
  if (public_key.size() != kPublicKeyBytes) {
    return absl::InvalidArgumentError(StrCat("public key has ", public_key.size(), " bytes, not 32"));
  }
  if (std::find(keys_.begin(), keys_.end(), public_key) == keys_.end()) keys_.emplace_back(public_key);
  return absl::OkStatus();
}

absl::Status TrustedKeys::Verify(const v1::SignedManifest& manifest) const {
  return Verify(SignedPayload(manifest), manifest.signatures(), "artifact");
}

absl::Status TrustedKeys::Verify(const v1::SignedBundle& bundle) const {
  return Verify(SignedPayload(bundle), bundle.signatures(), "bundle");
}

absl::Status TrustedKeys::Verify(std::string_view payload, const Signatures& signatures, std::string_view what) const {
  std::vector<std::string> untrusted;
  for (const v1::Signature& signature : signatures) {
    bool known = false;
    for (const std::string& key : keys_) {
      if (KeyId(key) != signature.signer()) continue;
      known = true;
      if (VerifyOne(key, payload, signature.ed25519())) return absl::OkStatus();
    }
    untrusted.push_back(StrCat(signature.signer().substr(0, 32), known ? " (wrong signature)" : " (not trusted)"));
  }
  if (untrusted.empty()) return absl::PermissionDeniedError(StrCat("the ", what, " is not signed"));
  return absl::PermissionDeniedError(
      StrCat("no good signature by a trusted key; the ", what, " is signed by ", absl::StrJoin(untrusted, ", ")));
}

std::string KeyId(std::string_view public_key) { return Sha256(public_key).Hex().substr(0, 16); }

}  // namespace stepone
