#include "tests/golden/golden_file.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

namespace stepone::golden {
namespace {

std::string Trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return std::string(text);
}

// The rest of `line` after `// word`, when it starts so.
bool Directive(const std::string& line, std::string_view word, std::string* rest) {
  const std::string start = "// " + std::string(word);
  if (line.compare(0, start.size(), start) != 0) return false;
  *rest = Trimmed(line.substr(start.size()));
  return true;
}

void Finish(Case c, std::vector<Case>& cases) {
  if (Trimmed(c.input).empty()) return;
  if (c.name.empty()) c.name = "line " + std::to_string(c.line);
  if (c.passes.empty() && !cases.empty() && cases.back().file == c.file) c.passes = cases.back().passes;
  cases.push_back(std::move(c));
}

void ReadFile(const std::filesystem::path& path, std::vector<Case>& cases) {
  std::ifstream in(path);
  std::string line, rest;
  Case c;
  c.file = path.stem();
  c.line = 1;
  std::string* target = nullptr;
  for (int number = 1; std::getline(in, line); ++number) {
    if (target == nullptr) target = &c.input;
    if (Directive(line, "-----", &rest)) {
      Finish(std::move(c), cases);
      c = Case();
      c.file = path.stem();
      c.line = number + 1;
      target = &c.input;
    } else if (Directive(line, "pass:", &rest)) {
      std::stringstream list(rest);
      for (std::string pass; std::getline(list, pass, ',');) c.passes.push_back(Trimmed(pass));
    } else if (Directive(line, "expect-error:", &rest)) {
      c.error = rest;
    } else if (Directive(line, "unchanged", &rest)) {
      c.unchanged = true;
    } else if (Directive(line, "expect", &rest)) {
      target = &c.expected;
    } else {
      if (line.compare(0, 2, "# ") == 0 && target == &c.input) c.name = Trimmed(line.substr(1));
      *target += line + '\n';
    }
  }
  Finish(std::move(c), cases);
}

}  // namespace

std::vector<Case> ReadCases(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".tg") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Case> cases;
  for (const auto& path : paths) ReadFile(path, cases);
  if (cases.empty()) {
    std::cerr << "no cases in " << folder << "\n";
    std::abort();
  }
  return cases;
}

std::string TestName(const Case& c) {
  std::string name = c.file + "_" + std::to_string(c.line) + "_" + c.name;
  for (char& ch : name) {
    if (!std::isalnum(static_cast<unsigned char>(ch))) ch = '_';
  }
  return name.substr(0, 90);
}

}  // namespace stepone::golden
