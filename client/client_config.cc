// The only file of the C++ client that reads the environment.
#include "client/client_config.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "proto/str_cat.h"

namespace stepone::client {
namespace {

constexpr size_t kPublicKeyBytes = 32;
constexpr size_t kMaxJobBytes = 128;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

template <typename T>
absl::Status ReadNumber(const char* name, T& field) {
  const std::string text = Variable(name);
  if (text.empty()) return absl::OkStatus();
  if (!absl::SimpleAtoi(text, &field) || field < 0) {
    return absl::InvalidArgumentError(StrCat(name, "=\"", text, "\" is not a number"));
  }
  return absl::OkStatus();
}

std::string UserFolder() {
  if (std::string home = Variable("HOME"); !home.empty()) return home;
  const passwd* entry = getpwuid(getuid());
  return entry != nullptr ? entry->pw_dir : "/tmp";
}

// A key in hexadecimal or base64; empty when it is neither.
std::string DecodeKey(const std::string& text) {
  if (text.size() == 2 * kPublicKeyBytes) {
    for (char c : text) {
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return "";
    }
    return absl::HexStringToBytes(text);
  }
  std::string raw;
  return absl::Base64Unescape(text, &raw) && raw.size() == kPublicKeyBytes ? raw : "";
}

// A name that all processes of one run have in common, and no other run, as their launcher tells it; empty when none
// does. What a name may not hold becomes '-'.
std::string JobOfLauncher() {
  // torchrun says "none" when it was given no --rdzv-id; its runs then can't be told apart.
  std::string job = Variable("TORCHELASTIC_RUN_ID");
  if (job == "none") job.clear();
  if (job.empty() && !Variable("SLURM_JOB_ID").empty()) {
    job = StrCat("slurm-", Variable("SLURM_JOB_ID"), ".", Variable("SLURM_STEP_ID"));
  }
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "JOBSET_NAME", "VC_JOB_NAME"}) {
    if (job.empty()) job = Variable(name);
  }
  job = job.substr(0, kMaxJobBytes);
  for (char& c : job) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && !absl::StrContains("_.:@-", c)) c = '-';
  }
  return absl::StrReplaceAll(job, {{"..", "--"}});
}

}  // namespace

absl::StatusOr<ClientConfig> ConfigFromEnvironment() {
  ClientConfig config;
  config.endpoint = Variable("STEPONE_ENDPOINT");
  config.home = DefaultHome();
  config.server_path = Variable("STEPONE_SERVER");
  for (absl::string_view word : absl::StrSplit(Variable("STEPONE_SERVER_ARGS"), ' ', absl::SkipEmpty())) {
    config.server_arguments.emplace_back(word);
  }
  config.trusted_keys_file = Variable("STEPONE_TRUSTED_KEYS");
  config.tls_ca_file = Variable("STEPONE_TLS_CA");
  config.tls_cert_file = Variable("STEPONE_TLS_CERT");
  config.tls_key_file = Variable("STEPONE_TLS_KEY");
  config.token_file = Variable("STEPONE_TOKEN_FILE");
  config.tenant = Variable("STEPONE_TENANT");
  config.job = Variable("STEPONE_JOB");
  if (config.job.empty()) config.job = JobOfLauncher();
  config.isa = Variable("STEPONE_ISA");
  if (absl::Status status = ReadNumber("RANK", config.rank); !status.ok()) return status;
  const std::pair<const char*, int64_t*> times[] = {
      {"STEPONE_CONNECT_TIMEOUT_MS", &config.connect_timeout_ms},
      {"STEPONE_REQUEST_TIMEOUT_MS", &config.request_timeout_ms},
      {"STEPONE_SERVER_START_TIMEOUT_MS", &config.server_start_timeout_ms},
  };
  for (const auto& [name, field] : times) {
    if (absl::Status status = ReadNumber(name, *field); !status.ok()) return status;
  }
  return config;
}

std::string DefaultHome() {
  if (std::string home = Variable("STEPONE_HOME"); !home.empty()) return home;
  if (std::string state = Variable("XDG_STATE_HOME"); !state.empty()) return state + "/stepone";
  return UserFolder() + "/.local/state/stepone";
}

std::string FindOnPath(const std::string& name) {
  for (absl::string_view folder : absl::StrSplit(Variable("PATH"), ':', absl::SkipEmpty())) {
    std::string path = StrCat(folder, "/", name);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

absl::StatusOr<std::vector<std::string>> ReadTrustedKeys(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(StrCat("file of trusted keys ", path, " can't be read"));
  std::vector<std::string> keys;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line.erase(std::min(line.find('#'), line.size()));
    absl::StripAsciiWhitespace(&line);
    if (line.empty()) continue;
    std::string key = DecodeKey(line);
    if (key.empty()) return absl::InvalidArgumentError(StrCat(path, ":", number, " is no ed25519 public key"));
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace stepone::client
