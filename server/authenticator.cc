#include "server/authenticator.h"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"

namespace stepone::server {
namespace {

constexpr absl::Duration kLookAgain = absl::Seconds(1);

int64_t ModificationTime(const struct stat& info) { return info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec; }

}  // namespace

Authenticator::Authenticator(const std::vector<std::string>& tenants, std::string token_file)
    : tenants_(tenants.begin(), tenants.end()), token_file_(std::move(token_file)) {}

absl::Status Authenticator::Load() {
  if (token_file_.empty()) return absl::OkStatus();
  struct stat info;
  if (stat(token_file_.c_str(), &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("token file ", token_file_));
  if ((info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("token file ", token_file_, " can be read by others; chmod 600 it"));
  }
  std::ifstream in(token_file_);
  absl::flat_hash_map<Digest, std::string> tokens;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty() || text[0] == '#') continue;
    const std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
    if (words.size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("token file ", token_file_, ", line ", number, ": not \"TOKEN TENANT\""));
    }
    tokens[Sha256(words[0])] = words[1];
  }
  if (in.bad()) return absl::UnavailableError(absl::StrCat("cannot read token file ", token_file_));
  absl::MutexLock lock(&mu_);
  tenant_by_token_ = std::move(tokens);
  loaded_mtime_ns_ = ModificationTime(info);
  return absl::OkStatus();
}

void Authenticator::Refresh() {
  {
    absl::MutexLock lock(&mu_);
    const absl::Time now = absl::Now();
    if (now < next_look_) return;
    next_look_ = now + kLookAgain;
    struct stat info;
    if (stat(token_file_.c_str(), &info) == 0 && ModificationTime(info) == loaded_mtime_ns_) return;
  }
  if (absl::Status status = Load(); !status.ok()) spdlog::warn("old tokens stay valid: {}", status.ToString());
}

absl::Status Authenticator::Check(const std::string& authorization, const std::string& tenant) {
  if (!token_file_.empty()) {
    Refresh();
    constexpr absl::string_view kScheme = "Bearer ";
    if (!absl::StartsWithIgnoreCase(authorization, kScheme)) return absl::UnauthenticatedError("a token is needed");
    const Digest token = Sha256(authorization.substr(kScheme.size()));
    absl::MutexLock lock(&mu_);
    const auto found = tenant_by_token_.find(token);
    if (found == tenant_by_token_.end()) return absl::UnauthenticatedError("unknown token");
    if (found->second != tenant) return absl::PermissionDeniedError("the token is another tenant's");
  }
  if (!tenants_.empty() && !tenants_.contains(tenant))
    return absl::PermissionDeniedError("this tenant may not ask here");
  return absl::OkStatus();
}

}  // namespace stepone::server
