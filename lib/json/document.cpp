#include "json/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "system/error.hpp"
#include "system/shortened.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

// Builds the document as the parser walks through the text. The parser does not recurse, so nesting
// costs nothing until it is refused here.
class Builder : public nlohmann::json_sax<json> {
 public:
  Builder(std::string place, ErrorList& errors) : place_(std::move(place)), errors_(errors) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = open_.back();
    level.key = name;
    level.repeated = !level.keys.insert(name).second;
    if (level.repeated) {
      errors_.add(place_ + pointer(), "this key is given twice in one object; keep one of them");
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    syntax_error_ = {position, error.what()};
    return false;
  }

  json take() { return std::move(document_); }
  const std::optional<std::pair<std::size_t, std::string>>& syntax_error() const {
    return syntax_error_;
  }

 private:
  struct Level {
    json value;
    std::string key;
    std::set<std::string> keys;
    bool repeated = false;
  };

  std::string pointer() const {
    std::string text;
    for (const Level& level : open_) {
      text = level.value.is_array() ? child(text, level.value.size())
                                    : child(text, shortened(level.key));
    }
    return text;
  }

  bool add(json value) {
    if (open_.empty()) {
      document_ = std::move(value);
      return true;
    }
    Level& level = open_.back();
    if (level.value.is_array()) {
      level.value.push_back(std::move(value));
    } else if (!level.repeated) {
      level.value[level.key] = std::move(value);
    }
    return true;
  }

  bool open(json value) {
    if (open_.size() >= kDeepestNesting) {
      errors_.add(place_ + pointer(),
                  fmt::format("nested more than {} deep; a sweep file is flatter than that",
                              kDeepestNesting));
      return false;
    }
    open_.push_back({std::move(value), "", {}, false});
    return true;
  }

  bool close() {
    json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  std::string place_;
  ErrorList& errors_;
  json document_;
  std::vector<Level> open_;
  std::optional<std::pair<std::size_t, std::string>> syntax_error_;
};

// `text` as a terminal can show it: bytes of no UTF-8 text as \xNN, and not without end.
std::string legible(std::string text) {
  constexpr std::size_t kLongest = 400;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  if (is_utf8(json(text))) return text;
  std::string shown;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    shown += code < 0x80 ? std::string(1, c) : fmt::format("\\x{:02x}", code);
  }
  return shown;
}

// The parser's message, without its own name and position.
std::string cause_of(const std::string& what) {
  std::string text = what;
  const std::size_t tag = text.find("] ");
  if (text.rfind("[json.exception", 0) == 0 && tag != std::string::npos) text.erase(0, tag + 2);
  if (text.rfind("parse error", 0) == 0) {
    const std::size_t end = text.find(": ");
    if (end != std::string::npos) text.erase(0, end + 2);
  }
  return legible(std::move(text));
}

// `position`: bytes read when the error was met, the offending one included.
std::string line_and_column(const std::string& text, std::size_t position) {
  const std::size_t at = std::min(position > 0 ? position - 1 : 0, text.size());
  const auto before = text.begin() + at;
  const auto line = 1 + std::count(text.begin(), before, '\n');
  const std::size_t newline = at > 0 ? text.rfind('\n', at - 1) : std::string::npos;
  const std::size_t column = newline == std::string::npos ? at + 1 : at - newline;
  return fmt::format("{}:{}", line, column);
}

// The comma before the bracket at which the parser stopped (`position` as above), if there is one.
std::optional<std::size_t> trailing_comma(const std::string& text, std::size_t position) {
  if (position == 0 || position > text.size()) return std::nullopt;
  if (text[position - 1] != '}' && text[position - 1] != ']') return std::nullopt;
  const std::size_t before = text.find_last_not_of(" \t\r\n", position - 2);
  const bool is_comma = position > 1 && before != std::string::npos && text[before] == ',';
  return is_comma ? std::optional(before) : std::nullopt;
}

// Whether the parser stopped at `at`, within a first word such as the "name:" of YAML. That may
// begin null, and "- a" a number.
bool begins_as_yaml(const std::string& text, std::size_t at) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return false;
  const bool is_word = text[first] == '-' || std::isalpha(static_cast<unsigned char>(text[first]));
  return is_word && text.find_first_of(" \t\r\n:", first) >= at;
}

// A remedy for text that is not JSON, by its first character; "" for most.
std::string in_json(const std::string& text, std::size_t position) {
  if (position == 0 || position > text.size()) return "";
  const char met = text[position - 1];
  if (met == '#') return "; begin a comment with //";
  if (met == '\'') return "; write names and words in double quotes";
  if (begins_as_yaml(text, position - 1)) return "; write a JSON object, not YAML";
  if (text.compare(position - 1, 2, "Na") == 0 || met == 'I') return "; give a finite number";
  const bool is_python = met == 'T' || met == 'F' || met == 'N';
  return is_python ? "; write true, false and null in lower case" : "";
}

constexpr bool kStrict = true;
constexpr bool kCommentsAllowed = true;

void set_value(json& document, const std::string& pointer, json value, const std::string& place,
               ErrorList& errors) {
  json* at = &document;
  std::size_t start = 1;
  while (true) {
    const std::size_t end = std::min(pointer.find('/', start), pointer.size());
    const std::string written = pointer.substr(start, end - start);
    std::string token;
    for (std::size_t i = 0; i < written.size(); ++i) {
      const bool escape = written[i] == '~' && i + 1 < written.size();
      if (escape && (written[i + 1] == '0' || written[i + 1] == '1')) {
        token += written[++i] == '0' ? '~' : '/';
      } else {
        token += written[i];
      }
    }
    if (at->is_null()) *at = json::object();
    if (at->is_object()) {
      at = &(*at)[token];
    } else if (at->is_array()) {
      const bool digits = !token.empty() && token.size() < 10 &&
                          token.find_first_not_of("0123456789") == std::string::npos;
      const std::size_t index = token == "-" ? at->size() : digits ? std::stoul(token) : SIZE_MAX;
      if (index == SIZE_MAX && !written.empty()) {
        const std::string list = pointer.substr(0, start - 1);
        errors.add(place, fmt::format("{} is a list and has no member {}; replace it by --set "
                                      "{}=VALUE",
                                      list.empty() ? "the document" : list, written, list));
        return;
      }
      if (index > at->size()) {
        errors.add(place, fmt::format("index {} is out of range ({} elements)",
                                      written.empty() ? "an empty name" : written, at->size()));
        return;
      }
      if (index == at->size()) at->push_back(nullptr);
      at = &(*at)[index];
    } else {
      errors.add(place, fmt::format("{} has no member {}, it is {}",
                                    start > 1 ? pointer.substr(0, start - 1) : "the document",
                                    written, shown(*at)));
      return;
    }
    if (end == pointer.size()) break;
    start = end + 1;
  }
  *at = std::move(value);
}

// select.layers as /select/layers; as it is, if it is a pointer. Empty where a name is.
std::string pointer_of(const std::string& path) {
  if (!path.empty() && path[0] == '/') return path.size() > 1 ? path : "";
  std::string pointer;
  std::size_t start = 0;
  while (true) {
    const std::size_t end = std::min(path.find('.', start), path.size());
    if (end == start) return "";
    pointer += '/';
    for (const char c : path.substr(start, end - start)) {
      pointer += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    }
    if (end == path.size()) return pointer;
    start = end + 1;
  }
}

}  // namespace

json parse_document(const std::string& text, const std::string& file, ErrorList& errors) {
  // The parser takes the first of them for the end, and would leave the rest unread.
  if (const std::size_t at = text.find('\0'); at != std::string::npos) {
    throw InputError(fmt::format("{}:{}: not JSON here: a byte of value 0; save it as UTF-8", file,
                                 line_and_column(text, at + 1)));
  }
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw InputError(fmt::format("{}:1:1: invalid JSON: the text is empty; write an object", file));
  }
  Builder builder("", errors);
  json::sax_parse(text, &builder, json::input_format_t::json, kStrict, kCommentsAllowed);
  if (const auto& error = builder.syntax_error()) {
    if (const auto comma = trailing_comma(text, error->first)) {
      throw InputError(fmt::format("{}:{}: invalid JSON: trailing comma before {}; remove it", file,
                                   line_and_column(text, *comma + 1), text[error->first - 1]));
    }
    throw InputError(fmt::format("{}:{}: invalid JSON: {}{}", file,
                                 line_and_column(text, error->first), cause_of(error->second),
                                 in_json(text, error->first)));
  }
  return builder.take();
}

void apply_sets(json& document, const std::vector<std::string>& sets, ErrorList& errors) {
  for (const std::string& set : sets) {
    const std::size_t equals = set.find('=');
    const std::string path = set.substr(0, equals);
    const std::string place = "--set " + path;
    const std::string pointer = equals == std::string::npos ? "" : pointer_of(path);
    if (pointer.empty()) {
      errors.add("--set " + set,
                 "must be path=value, for example --set select.layers=[0] or, as a JSON pointer, "
                 "--set /select/layers=[0]");
      continue;
    }
    if (const auto names = std::count(pointer.begin(), pointer.end(), '/');
        names > kDeepestNesting) {
      errors.add(place, fmt::format("is a path of {} names; a sweep nests at most {} levels", names,
                                    kDeepestNesting));
      continue;
    }
    const std::string written = set.substr(equals + 1);
    Builder builder(place + " ", errors);
    const std::size_t before = errors.count();
    json::sax_parse(written, &builder, json::input_format_t::json, kStrict, kCommentsAllowed);
    if (errors.count() != before) continue;
    json value = builder.syntax_error() ? number_or_word(written) : builder.take();
    if (!is_utf8(value) || !is_utf8(json(pointer))) {
      errors.add(place, "is not UTF-8; encode the value as UTF-8");
      continue;
    }
    set_value(document, pointer, std::move(value), place, errors);
  }
}

bool is_utf8(const json& value) {
  try {
    static_cast<void>(value.dump());
    return true;
  } catch (const json::exception&) {
    return false;
  }
}

std::string shown(const json& value) {
  constexpr std::size_t kLongest = 120;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace kvbench
