#include "run/calibrate.hpp"

#include <memory>
#include <string>

#include "cli/index_list.hpp"
#include "commands.hpp"
#include "exit_codes.hpp"
#include "output/log.hpp"

namespace kvbench {
namespace {

constexpr const char* kCalibrateFooter =
    R"(Computes a method's or a codec's statistics from calibration texts, for each layer and KV head, over every
token of all texts together. A sweep names the file, relative to the sweep file, by the parameter calibration
of the method or codec; the prompt that is compressed is then not used for them. Cells have the file's
fingerprint in their key, and derived.calibrated_on_text says whether it was made from the cell's text, too.
A file of another model, of other sizes of heads or of another rotation is refused.
`kvbench list algorithms NAME` and `kvbench list storage NAME` say whether one takes a file.

Examples:
  kvbench calibrate --method qfilters --dump data/smollm2-constitution.h5 --out filters.cal.h5
  kvbench calibrate --method loki --params '{"centre": false}' --dump data/focused.h5 --out loki.cal.h5
  kvbench calibrate --method oscar --dump data/smollm2-constitution.h5 --out oscar.cal.h5)";

int run(const CalibrateRequest& request) {
  const auto made = calibrate(request);
  Index tokens = 0;
  for (const CalibratedText& text : made->texts) tokens += text.tokens;
  log_text("{}: {} calibrated on {} text{} of {} tokens, {} layer{}, fingerprint {}\n", request.out,
           made->method, made->texts.size(), made->texts.size() == 1 ? "" : "s", tokens,
           made->layers.size(), made->layers.size() == 1 ? "" : "s", made->fingerprint);
  return kExitDone;
}

}  // namespace

Command add_calibrate(CLI::App& app) {
  const auto options = std::make_shared<CalibrateRequest>();
  CLI::App* command = app.add_subcommand(
      "calibrate", "Compute the statistics of a method or codec from calibration texts");
  command->add_option("--method,--algorithm", options->method, "The method or codec")
      ->type_name("NAME")
      ->required();
  command->add_option("--dump", options->dumps, "Dumps of the texts, or globs of dumps")
      ->required();
  command->add_option("-o,--out", options->out, "The calibration file to write")
      ->type_name("FILE")
      ->required();
  command
      ->add_option("--params", options->params,
                   "The method's parameters that the numbers depend on, as JSON")
      ->type_name("JSON");
  command
      ->add_option("--sequences", options->sequences,
                   "Sequences, separated by commas; default: all")
      ->delimiter(',');
  add_indices(*command, "--layers", options->layers, "Layers, such as 0-7,15; default: all");
  command->add_option("--tokens", options->tokens, "The first N tokens of each text; default: all")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->footer(kCalibrateFooter);
  return {command, [options] { return run(*options); }};
}

}  // namespace kvbench
