// The disk store's table of contents, so that it reopens without looking at each file.
#ifndef STEPONE_CACHE_DISK_INDEX_H_
#define STEPONE_CACHE_DISK_INDEX_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cache/store.h"

struct sqlite3;
struct sqlite3_stmt;

namespace stepone {

struct IndexRow {
  EntryId id;
  uint64_t file_bytes = 0;
  uint64_t content_bytes = 0;
  uint64_t used = 0;  // of the store's own access clock; greater is later
  std::string label;
};

// A SQLite database (write-ahead log). Only a copy of what the files say: losing some or all of it loses no entry,
// since the store's sweep puts rows right. Thread-safe.
class DiskIndex {
 public:
  // Creates the database if need be. kDataLoss: there is one that can't be used; kPermissionDenied; kResourceExhausted;
  // kUnavailable.
  static absl::StatusOr<std::unique_ptr<DiskIndex>> Open(const std::string& path);
  ~DiskIndex();

  // Calls `add` for each row without its label, least recently used first. kDataLoss when the database is damaged.
  absl::Status Load(const std::function<void(const IndexRow&)>& add);
  // Calls `visit` for each row of a kind, most recently used first, until it returns false.
  absl::Status ForEach(Kind kind, const Store::Visitor& visit);

  absl::Status Put(const IndexRow& row);
  absl::Status PutAll(const std::vector<IndexRow>& rows);
  absl::Status Remove(const EntryId& id);
  absl::Status RemoveAll(const std::vector<EntryId>& ids);
  // Sets the time of last use where there is a row.
  absl::Status Touch(const std::vector<std::pair<EntryId, uint64_t>>& uses);

 private:
  struct CloseDatabase {
    void operator()(sqlite3* database) const;
  };
  struct CloseStatement {
    void operator()(sqlite3_stmt* statement) const;
  };
  using Statement = std::unique_ptr<sqlite3_stmt, CloseStatement>;

  explicit DiskIndex(std::unique_ptr<sqlite3, CloseDatabase> database) : database_(std::move(database)) {}
  absl::Status Prepare();
  absl::Status PutLocked(const IndexRow& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RemoveLocked(const EntryId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls `change(i)` for i in [0, count) in one transaction; all or nothing.
  absl::Status Transaction(size_t count, const std::function<absl::Status(size_t)>& change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Execute(const char* sql);
  absl::StatusOr<Statement> Compile(const char* sql);
  // Runs a statement that returns no rows, and makes it ready for the next time.
  absl::Status Run(sqlite3_stmt* statement);
  absl::Status Error(std::string_view what) const;

  absl::Mutex mutex_;
  std::unique_ptr<sqlite3, CloseDatabase> database_;
  Statement put_ ABSL_GUARDED_BY(mutex_);
  Statement remove_ ABSL_GUARDED_BY(mutex_);
  Statement touch_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stepone

#endif  // STEPONE_CACHE_DISK_INDEX_H_
