#include "storage/codec.hpp"

#include "parameters/bind_parameters.hpp"

namespace kvbench {

CodecDescription::CodecDescription() {
  randomised = [](const Params&) { return false; };
  validate = [](const Params&) { return std::nullopt; };
  skip_reason = [](const Params&, const StreamShape&, CacheTensor, Index) { return std::nullopt; };
  not_rotated = [](const Params&) { return std::nullopt; };
  calibrates_layer = [](const Params&) { return false; };
}
CodecDescription::CodecDescription(const CodecDescription&) = default;
CodecDescription::CodecDescription(CodecDescription&&) noexcept = default;
CodecDescription& CodecDescription::operator=(const CodecDescription&) = default;
CodecDescription& CodecDescription::operator=(CodecDescription&&) noexcept = default;
CodecDescription::~CodecDescription() = default;

CodecDescription described(const CodecFacts& facts, const UntypedTable& table) {
  CodecDescription d;
  static_cast<CodecFacts&>(d) = facts;
  d.parameters = table.rows();
  return d;
}

template void bind(
    const std::shared_ptr<const UntypedTable>&,
    const UntypedFunction<std::optional<std::string>(const StreamShape&, CacheTensor, Index)>&,
    std::function<std::optional<std::string>(const Params&, const StreamShape&, CacheTensor,
                                             Index)>&);
template void bind(const std::shared_ptr<const UntypedTable>&,
                   const UntypedFunction<std::unique_ptr<Codec>(const CodecContext&)>&,
                   std::function<std::unique_ptr<Codec>(const Params&, const CodecContext&)>&);

}  // namespace kvbench
