// The lists of `kvbench list`, each as text, JSON and Markdown.
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"

namespace kvbench {

// A list, and how it is printed. `names`: of algorithms or codecs, for their
// lists alone; empty: all.
struct Listed {
  const char* what;
  void (*as_text)(const std::vector<std::string>& names);
  Json (*as_json)(const std::vector<std::string>& names);
  void (*as_markdown)();  // null: not for a page
};

const std::vector<Listed>& all_listed();

}  // namespace kvbench
