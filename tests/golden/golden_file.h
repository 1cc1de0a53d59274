// Golden files: cases split by lines `// -----`, each of graph text and directives `// name: value`.
#ifndef STEPONE_TESTS_GOLDEN_GOLDEN_FILE_H_
#define STEPONE_TESTS_GOLDEN_GOLDEN_FILE_H_

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace stepone::golden {

struct Case {
  std::string file;                 // without folder and ending
  int line = 0;                     // of its first line
  std::string name;                 // from its first comment, or its line
  std::string input;                // the text before `// expect`
  std::string expected;             // the text after it; empty when there is no such line
  bool unchanged = false;           // `// unchanged` instead
  std::vector<std::string> passes;  // `// pass: a, b`: of the file's first case when it has none itself
  std::string error;                // `// expect-error: ...`
};

inline void PrintTo(const Case& c, std::ostream* out) { *out << c.file << ".tg:" << c.line; }

// All cases of all *.tg files in `folder`, sorted by file and line. Fails the process when there are none.
std::vector<Case> ReadCases(const std::string& folder);

// A name that gtest accepts.
std::string TestName(const Case& c);

}  // namespace stepone::golden

#endif  // STEPONE_TESTS_GOLDEN_GOLDEN_FILE_H_
