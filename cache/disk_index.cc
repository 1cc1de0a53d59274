#include "cache/disk_index.h"

#include <sqlite3.h>

#include "proto/str_cat.h"

namespace stepone {
namespace {

// A database with another number is set aside; the sweep builds a new one.
constexpr int kSchemaVersion = 1;

constexpr char kSchema[] =
    "CREATE TABLE IF NOT EXISTS entries("
    "  kind INTEGER NOT NULL, key BLOB NOT NULL, file_bytes INTEGER NOT NULL, content_bytes INTEGER NOT NULL,"
    "  used INTEGER NOT NULL, label BLOB NOT NULL, PRIMARY KEY(kind, key)) WITHOUT ROWID";

absl::StatusCode CodeOf(int result) {
  switch (result & 0xFF) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_SCHEMA:
    case SQLITE_ERROR:  // a table of another shape
      return absl::StatusCode::kDataLoss;
    case SQLITE_FULL:
      return absl::StatusCode::kResourceExhausted;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return absl::StatusCode::kPermissionDenied;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

void BindId(sqlite3_stmt* statement, int at, const EntryId& id) {
  sqlite3_bind_int(statement, at, static_cast<int>(id.kind));
  sqlite3_bind_blob(statement, at + 1, id.key.bytes.data(), Digest::kSize, SQLITE_STATIC);
}

std::string_view ColumnBytes(sqlite3_stmt* statement, int column) {
  const void* data = sqlite3_column_blob(statement, column);
  return std::string_view(static_cast<const char*>(data), static_cast<size_t>(sqlite3_column_bytes(statement, column)));
}

}  // namespace

void DiskIndex::CloseDatabase::operator()(sqlite3* database) const { sqlite3_close_v2(database); }
void DiskIndex::CloseStatement::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

DiskIndex::~DiskIndex() = default;

absl::StatusOr<std::unique_ptr<DiskIndex>> DiskIndex::Open(const std::string& path) {
  sqlite3* raw = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int result = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  std::unique_ptr<sqlite3, CloseDatabase> database(raw);
  if (result != SQLITE_OK) return absl::Status(CodeOf(result), StrCat("index ", path, ": ", sqlite3_errstr(result)));
  std::unique_ptr<DiskIndex> index(new DiskIndex(std::move(database)));
  absl::Status status = index->Prepare();
  if (!status.ok()) return status;
  return index;
}

absl::Status DiskIndex::Prepare() {
  absl::MutexLock lock(&mutex_);
  // NORMAL: a commit may be lost when the machine crashes, never when the process does; the files are the truth.
  for (const char* sql : {"PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", kSchema}) {
    if (absl::Status status = Execute(sql); !status.ok()) return status;
  }
  auto version = Compile("PRAGMA user_version");
  if (!version.ok()) return version.status();
  if (sqlite3_step(version->get()) != SQLITE_ROW) return Error("read the version");
  const int number = sqlite3_column_int(version->get(), 0);
  version->reset();
  if (number == 0) {
    if (absl::Status status = Execute(StrCat("PRAGMA user_version=", kSchemaVersion).c_str()); !status.ok())
      return status;
  } else if (number != kSchemaVersion) {
    return absl::DataLossError(StrCat("index: schema version ", number, " is not known"));
  }
  const std::pair<const char*, Statement*> statements[] = {
      {"INSERT OR REPLACE INTO entries(kind, key, file_bytes, content_bytes, used, label) VALUES(?,?,?,?,?,?)", &put_},
      {"DELETE FROM entries WHERE kind=? AND key=?", &remove_},
      {"UPDATE entries SET used=?3 WHERE kind=?1 AND key=?2", &touch_},
  };
  for (const auto& [sql, statement] : statements) {
    auto compiled = Compile(sql);
    if (!compiled.ok()) return compiled.status();
    *statement = *std::move(compiled);
  }
  return absl::OkStatus();
}

absl::Status DiskIndex::Load(const std::function<void(const IndexRow&)>& add) {
  absl::MutexLock lock(&mutex_);
  auto select = Compile("SELECT kind, key, file_bytes, content_bytes, used FROM entries ORDER BY used");
  if (!select.ok()) return select.status();
  sqlite3_stmt* statement = select->get();
  int result;
  while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
    const auto key = Digest::FromRaw(ColumnBytes(statement, 1));
    if (!key) return absl::DataLossError("index: a key does not have 32 bytes");
    IndexRow row;
    row.id = {static_cast<Kind>(sqlite3_column_int(statement, 0)), *key};
    row.file_bytes = static_cast<uint64_t>(sqlite3_column_int64(statement, 2));
    row.content_bytes = static_cast<uint64_t>(sqlite3_column_int64(statement, 3));
    row.used = static_cast<uint64_t>(sqlite3_column_int64(statement, 4));
    add(row);
  }
  return result == SQLITE_DONE ? absl::OkStatus() : Error("read entries");
}

absl::Status DiskIndex::ForEach(Kind kind, const Store::Visitor& visit) {
  absl::MutexLock lock(&mutex_);
  auto select = Compile("SELECT key, label FROM entries WHERE kind=? ORDER BY used DESC");
  if (!select.ok()) return select.status();
  sqlite3_stmt* statement = select->get();
  sqlite3_bind_int(statement, 1, static_cast<int>(kind));
  int result;
  while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
    const auto key = Digest::FromRaw(ColumnBytes(statement, 0));
    if (key && !visit(*key, ColumnBytes(statement, 1))) return absl::OkStatus();
  }
  return result == SQLITE_DONE ? absl::OkStatus() : Error("list entries");
}

absl::Status DiskIndex::PutLocked(const IndexRow& row) {
  BindId(put_.get(), 1, row.id);
  sqlite3_bind_int64(put_.get(), 3, static_cast<int64_t>(row.file_bytes));
  sqlite3_bind_int64(put_.get(), 4, static_cast<int64_t>(row.content_bytes));
  sqlite3_bind_int64(put_.get(), 5, static_cast<int64_t>(row.used));
  sqlite3_bind_blob(put_.get(), 6, row.label.data(), static_cast<int>(row.label.size()), SQLITE_STATIC);
  return Run(put_.get());
}

absl::Status DiskIndex::Put(const IndexRow& row) {
  absl::MutexLock lock(&mutex_);
  return PutLocked(row);
}

absl::Status DiskIndex::RemoveLocked(const EntryId& id) {
  BindId(remove_.get(), 1, id);
  return Run(remove_.get());
}

absl::Status DiskIndex::Remove(const EntryId& id) {
  absl::MutexLock lock(&mutex_);
  return RemoveLocked(id);
}

absl::Status DiskIndex::Transaction(size_t count, const std::function<absl::Status(size_t)>& change) {
  absl::Status status = Execute("BEGIN IMMEDIATE");
  if (!status.ok()) return status;
  for (size_t i = 0; i < count && status.ok(); ++i) status = change(i);
  if (status.ok()) status = Execute("COMMIT");
  if (!status.ok()) Execute("ROLLBACK").IgnoreError();
  return status;
}

absl::Status DiskIndex::PutAll(const std::vector<IndexRow>& rows) {
  absl::MutexLock lock(&mutex_);
  return Transaction(rows.size(), [&](size_t i) {
    mutex_.AssertHeld();
    return PutLocked(rows[i]);
  });
}

absl::Status DiskIndex::RemoveAll(const std::vector<EntryId>& ids) {
  absl::MutexLock lock(&mutex_);
  return Transaction(ids.size(), [&](size_t i) {
    mutex_.AssertHeld();
    return RemoveLocked(ids[i]);
  });
}

absl::Status DiskIndex::Touch(const std::vector<std::pair<EntryId, uint64_t>>& uses) {
  absl::MutexLock lock(&mutex_);
  return Transaction(uses.size(), [&](size_t i) {
    mutex_.AssertHeld();
    BindId(touch_.get(), 1, uses[i].first);
    sqlite3_bind_int64(touch_.get(), 3, static_cast<int64_t>(uses[i].second));
    return Run(touch_.get());
  });
}

absl::Status DiskIndex::Execute(const char* sql) {
  if (sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK) return Error(sql);
  return absl::OkStatus();
}

absl::StatusOr<DiskIndex::Statement> DiskIndex::Compile(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(database_.get(), sql, -1, &statement, nullptr) != SQLITE_OK) return Error(sql);
  return Statement(statement);
}

absl::Status DiskIndex::Run(sqlite3_stmt* statement) {
  const int result = sqlite3_step(statement);
  absl::Status status = result == SQLITE_DONE ? absl::OkStatus() : Error("change entries");
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  return status;
}

absl::Status DiskIndex::Error(std::string_view what) const {
  return absl::Status(CodeOf(sqlite3_errcode(database_.get())),
                      StrCat("index: ", sqlite3_errmsg(database_.get()), " (", what, ")"));
}

}  // namespace stepone
