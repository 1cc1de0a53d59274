// The object built from test_kernels.c.
#ifndef STEPONE_TESTS_UNIT_CLIENT_TEST_KERNELS_H_
#define STEPONE_TESTS_UNIT_CLIENT_TEST_KERNELS_H_

#include <fstream>
#include <iterator>
#include <string>

namespace stepone::client {

inline std::string TestKernelObject() {
  std::ifstream file(STEPONE_TEST_KERNELS, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace stepone::client

#endif  // STEPONE_TESTS_UNIT_CLIENT_TEST_KERNELS_H_
