// Who may ask, and for which tenant.
#ifndef STEPONE_SERVER_AUTHENTICATOR_H_
#define STEPONE_SERVER_AUTHENTICATOR_H_

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/digest.h"

namespace stepone::server {

// Thread-safe.
class Authenticator {
 public:
  // `tenants`: those that may ask; empty: any. `token_file`: lines "TOKEN TENANT", '#' begins a comment; empty: no
  // tokens.
  Authenticator(const std::vector<std::string>& tenants, std::string token_file);

  // Reads the token file. kNotFound, kInvalidArgument (names the line), kPermissionDenied (others may read it).
  absl::Status Load();

  // `authorization` is the header's value ("Bearer TOKEN"), or empty. kUnauthenticated: no token, or an unknown one.
  // kPermissionDenied: the token is another tenant's, or the tenant may not ask. A token file that changed is read
  // first; if it is broken, the old tokens stay valid.
  absl::Status Check(const std::string& authorization, const std::string& tenant);

 private:
  void Refresh();

  const absl::flat_hash_set<std::string> tenants_;
  const std::string token_file_;
  absl::Mutex mu_;
  // By digest, so that looking a token up takes the same time however much of it is right.
  absl::flat_hash_map<Digest, std::string> tenant_by_token_ ABSL_GUARDED_BY(mu_);
  int64_t loaded_mtime_ns_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time next_look_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_AUTHENTICATOR_H_
