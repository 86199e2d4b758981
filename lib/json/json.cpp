#include "json/json.hpp"

#include <charconv>
#include <cmath>

namespace kvbench {
namespace {

constexpr auto kReplace = nlohmann::detail::error_handler_t::replace;

}  // namespace

std::string to_line(const Json& value) { return indented(value, -1); }
std::string sorted_line(const nlohmann::json& value) { return indented(value, -1); }

std::string exact_line(const Json& value) { return value.dump(); }
std::string exact_line(const nlohmann::json& value) { return value.dump(); }

std::string ascii_line(const nlohmann::json& value) { return value.dump(-1, ' ', true, kReplace); }

std::string indented(const Json& value, int indent) {
  return value.dump(indent, ' ', false, kReplace);
}
std::string indented(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, kReplace);
}

Json parse_line(std::string_view text) { return Json::parse(text); }

Json parse_or_discarded(std::string_view text) { return Json::parse(text, nullptr, false); }

nlohmann::json parse_sorted_or_discarded(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, false);
}

nlohmann::json number_or_word(const std::string& text) {
  const bool has_sign = text.starts_with('+');
  if (!has_sign && !text.starts_with('.') && !text.ends_with('.')) return text;
  const char* end = text.data() + text.size();
  double value = 0.0;
  const auto [stop, error] = std::from_chars(text.data() + (has_sign ? 1 : 0), end, value);
  const bool is_number = error == std::errc() && stop == end && std::isfinite(value);
  return is_number ? nlohmann::json(value) : nlohmann::json(text);
}

bool read_events(std::istream& in, nlohmann::json_sax<Json>& reader) {
  return Json::sax_parse(in, &reader);
}

}  // namespace kvbench
