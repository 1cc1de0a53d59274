#include "compiler/codegen/random.h"

namespace stepone::codegen {

float RandomUniform(int64_t seed, int64_t stream, int64_t position) {
  uint64_t key = static_cast<uint64_t>(seed) + 0x9E3779B97F4A7C15u * (static_cast<uint64_t>(stream) + 1);
  key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9u;
  key = (key ^ (key >> 27)) * 0x94D049BB133111EBu;
  key ^= key >> 31;

  const uint64_t counter = (static_cast<uint64_t>(position) >> 4 << 3) | (static_cast<uint64_t>(position) & 7);
  uint32_t c0 = static_cast<uint32_t>(counter);
  uint32_t c1 = static_cast<uint32_t>(counter >> 32) ^ static_cast<uint32_t>(key >> 32);
  uint32_t k = static_cast<uint32_t>(key);
  for (int round = 0; round < 7; ++round) {
    const uint64_t product = uint64_t{0xD256D193u} * c0;
    c0 = static_cast<uint32_t>(product >> 32) ^ k ^ c1;
    c1 = static_cast<uint32_t>(product);
    k += 0x9E3779B9u;
  }
  const uint32_t word = (position & 8) != 0 ? c1 : c0;
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

}  // namespace stepone::codegen
