// Methods that take numbers from other texts than their prompt: the parameter that names the file,
// and how its numbers are read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/calibration.hpp"
#include "parameters/parameter_table.hpp"
#include "system/error.hpp"

namespace kvbench {

using OptionalCalibration = std::optional<CalibrationParameter>;

template <class P>
Field<P> calibration_field(OptionalCalibration P::* member) {
  return field("calibration", member,
               "file of kvbench calibrate, with numbers from other texts; prompt: its own ones")
      .or_word("prompt")
      .later();
}

// An array of the stream's KV head in the file. Throws CellError without such an array.
inline std::vector<double> calibrated(const CalibrationParameter& calibration, const Stream& stream,
                                      const std::string& name, const std::vector<Index>& shape) {
  return calibration.content->read(stream.id, name, shape);
}

// Throws CellError with the reason why a text gives no numbers, if there is one.
inline void require_none(const std::optional<std::string>& reason) {
  if (reason) throw CellError(*reason);
}

}  // namespace kvbench
