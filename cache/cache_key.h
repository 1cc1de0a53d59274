// The key of a compile request, and what it was made of.
//
// Canonical bytes are written field by field, never by a serialiser, and begin with a version byte. They hold
// everything that may change an artifact: the graph's structure, types, constants and symbols' ranges; all fields of
// Target and of CodeOptions; the compiler's fingerprint; the tenant, as a salt. They hold none of: names of values,
// nodes and symbols, diagnostics, device indices, process-group names (numbered by first use instead), host, job, rank,
// paths, RunOptions. Values are numbered in the order of their definition (inputs, then constants by first use, then
// results), symbols by position; floats are written by bit pattern.
#ifndef STEPONE_CACHE_CACHE_KEY_H_
#define STEPONE_CACHE_CACHE_KEY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/digest.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone {

// Raised when canonical bytes of the same request change; all stored entries then miss.
inline constexpr uint8_t kKeyVersion = 1;

// A key with its material: a hash is a name, not an identity, so whoever finds an entry by key compares the material.
struct KeyMaterial {
  std::string canonical;
  Digest key;  // SHA-256 of canonical
};

// Takes any graph, also one that breaks the importer's rules (it then gets a key of its own); bounded by the graph's
// size. `fingerprint`: of the compiler, as the worker says it in Hello. Thread-safe, like everything here.
KeyMaterial GraphKey(const v1::Graph& graph, const v1::Target& target, const v1::CodeOptions& options,
                     std::string_view fingerprint, std::string_view tenant);

// The key of a captured graph: of its text, line by line, and of what else decides what becomes of it. Never the key of
// a graph.
KeyMaterial TraceKey(std::string_view trace, const v1::Target& target, const v1::CodeOptions& options,
                     std::string_view fingerprint, std::string_view tenant);

// What canonical bytes say, for people: ("target.isa", "x86-64-v3"), ("graph.inputs[3].dtype", "float32"),
// ("graph.nodes[17].op", "aten.mm.default"), ... in canonical order. Bytes that are no canonical form give one pair
// named "damaged".
std::vector<std::pair<std::string, std::string>> DescribeKey(std::string_view canonical);

// The fields in which two materials differ, in the order of the first; a field that one side lacks reads "(absent)".
// At most `limit` fields, then one named "..." that counts the others.
std::vector<v1::FieldDifference> DiffKeys(std::string_view requested, std::string_view nearest, size_t limit = 50);

// A summary of a material in a few bytes, to look for near neighbours among many (fits PutOptions::label).
std::string SketchKey(std::string_view canonical);

// How near two sketches are: 0 for different tenants or foreign bytes, 1000 for equal ones.
int SketchSimilarity(std::string_view a, std::string_view b);

}  // namespace stepone

#endif  // STEPONE_CACHE_CACHE_KEY_H_
