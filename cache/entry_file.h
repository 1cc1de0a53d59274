// One entry in one file of the disk store: a head that says what it is, its label, and its bytes, compressed if that
// pays. All integers are little-endian.
//
//   offset  bytes  field
//   0       8      magic "ST1ENTRY"
//   8       4      version, 1
//   12      1      kind
//   13      1      codec: 0 as it is, 1 zstd
//   14      2      bytes of the label, L
//   16      8      bytes of the content when unpacked
//   24      8      bytes of the content as stored, S
//   32      32     key
//   64      32     checksum: SHA-256 of bytes 0..63, the label and the stored content
//   96      L      label
//   96+L    S      stored content; the file ends here
#ifndef STEPONE_CACHE_ENTRY_FILE_H_
#define STEPONE_CACHE_ENTRY_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cache/store.h"

namespace stepone {

struct EntryFile {
  EntryId id;
  std::string label;
  std::string content;
};

// REQUIRES: the label has at most kMaxLabelBytes.
std::string EncodeEntryFile(const EntryId& id, std::string_view label, std::string_view content);

// kDataLoss says what is damaged; an entry of another id counts as damage.
absl::StatusOr<EntryFile> DecodeEntryFile(const EntryId& expected, std::string_view bytes);

// What the first bytes of a file tell.
struct EntryHead {
  std::string label;
  uint64_t content_bytes = 0;
};

// The longest head with its label.
inline constexpr size_t kMaxEntryHeadBytes = 96 + kMaxLabelBytes;

// Reads a head from the first kMaxEntryHeadBytes (or all) bytes of a file of `file_bytes`. Checks all but the checksum.
absl::StatusOr<EntryHead> PeekEntryFile(const EntryId& expected, std::string_view prefix, uint64_t file_bytes);

}  // namespace stepone

#endif  // STEPONE_CACHE_ENTRY_FILE_H_
