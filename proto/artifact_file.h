// The artifact container: one signed manifest and its objects in one byte sequence. See ARTIFACT_FORMAT.md.
#ifndef STEPONE_PROTO_ARTIFACT_FILE_H_
#define STEPONE_PROTO_ARTIFACT_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone {

// Serialises `artifact` with all its objects. REQUIRES: every object of the manifest is present.
std::string EncodeArtifactFile(const v1::Artifact& artifact);

// Reads a container. Checks magic, version, bounds and every object's digest against its bytes; kDataLoss names what is
// damaged. Signatures are not checked here (see signing.h).
absl::StatusOr<v1::Artifact> DecodeArtifactFile(std::string_view bytes);

}  // namespace stepone

#endif  // STEPONE_PROTO_ARTIFACT_FILE_H_
