#include "results/export_jsonl.hpp"

namespace kvbench {

void export_jsonl(const VisitRecords& records, std::ostream& out) {
  records([&](const Json& record) {
    Json line = Json::object();
    for (auto& [name, value] : flat_row(record, true)) line[name] = std::move(value);
    out << to_line(line) << "\n";
  });
}

}  // namespace kvbench
