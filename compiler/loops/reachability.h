// Which groups must run before which: kept exact while groups merge, so that a cycle is seen before it is made.
#ifndef STEPONE_COMPILER_LOOPS_REACHABILITY_H_
#define STEPONE_COMPILER_LOOPS_REACHABILITY_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace stepone::loops {

// Nodes 0..n-1 of an acyclic graph. Not thread-safe.
class Reachability {
 public:
  // `edges`: (before, after). REQUIRES: they make no cycle.
  Reachability(int32_t nodes, const std::vector<std::pair<int32_t, int32_t>>& edges);

  bool Reaches(int32_t from, int32_t to) const { return Bit(after_[from], to); }
  // Whether a way from one to the other leads through a third node, so that the two cannot be one.
  bool MergeMakesCycle(int32_t a, int32_t b) const;
  // `from` becomes part of `into`. REQUIRES: !MergeMakesCycle(into, from).
  void Merge(int32_t into, int32_t from);

 private:
  using Bits = std::vector<uint64_t>;
  static bool Bit(const Bits& bits, int32_t i) { return (bits[i >> 6] >> (i & 63)) & 1; }
  static void Set(Bits& bits, int32_t i) { bits[i >> 6] |= uint64_t{1} << (i & 63); }
  static void Clear(Bits& bits, int32_t i) { bits[i >> 6] &= ~(uint64_t{1} << (i & 63)); }

  std::vector<Bits> after_, before_;
};

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_REACHABILITY_H_
