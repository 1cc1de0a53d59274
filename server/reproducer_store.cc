#include "server/reproducer_store.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stepone::server {
namespace {

namespace fs = std::filesystem;

bool WriteFile(const fs::path& path, absl::string_view content) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  out.close();
  return !out.fail();
}

}  // namespace

ReproducerStore::ReproducerStore(std::string directory, int max_reproducers)
    : directory_(std::move(directory)), max_reproducers_(max_reproducers) {}

absl::StatusOr<std::string> ReproducerStore::Write(const Digest& key, const v1::CompileRequest& request,
                                                   absl::string_view report, absl::string_view worker_log) {
  const std::string id = key.Hex().substr(0, 16);
  // Who asked is nobody's business who debugs the compiler.
  v1::CompileRequest anonymous = request;
  anonymous.clear_context();
  anonymous.clear_known_objects();

  absl::MutexLock lock(&mu_);
  const fs::path folder = fs::path(directory_) / id;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot create ", folder.string(), ": ", error.message()));
  if (!WriteFile(folder / "request.pb", anonymous.SerializeAsString()) || !WriteFile(folder / "report.txt", report) ||
      !WriteFile(folder / "worker.log", worker_log)) {
    fs::remove_all(folder, error);
    return absl::UnavailableError(absl::StrCat("cannot write below ", folder.string()));
  }
  DropOldest();
  return id;
}

void ReproducerStore::DropOldest() {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> folders;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, error)) {
    folders.emplace_back(fs::last_write_time(entry.path(), error), entry.path());
  }
  std::sort(folders.begin(), folders.end());
  const size_t keep = static_cast<size_t>(std::max(max_reproducers_, 1));
  for (size_t i = 0; i + keep < folders.size(); ++i) fs::remove_all(folders[i].second, error);
}

}  // namespace stepone::server
