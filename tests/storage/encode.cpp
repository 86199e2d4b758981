// A codec of the registry as a program, for comparisons with others' code (tests/peers):
//
//   kvbench-encode CODEC PARAMETERS WIDTH [--decode] [--values] [--prompt=N] [--seed=N] < numbers
//
// PARAMETERS is a JSON object; the numbers are vectors of WIDTH doubles as they lie in memory, the
// keys (or values) of one stream, whose prompt is the first N, else all. Writes the blocks' bytes,
// with --decode the numbers that come back.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "codec_support.hpp"
#include "json/json.hpp"
#include "sweep/axis.hpp"

namespace kvbench::test {
namespace {

struct Options {
  bool decode = false;
  CacheTensor tensor = CacheTensor::kKeys;
  Index prompt = -1;
  std::uint32_t seed = 0;
};

Options options_of(int argc, char** argv) {
  Options out;
  for (int i = 4; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--decode") {
      out.decode = true;
    } else if (argument == "--values") {
      out.tensor = CacheTensor::kValues;
    } else if (argument.rfind("--seed=", 0) == 0) {
      out.seed = static_cast<std::uint32_t>(std::stoul(argument.substr(7)));
    } else if (argument.rfind("--prompt=", 0) == 0) {
      out.prompt = std::stol(argument.substr(argument.find('=') + 1));
    } else {
      throw std::invalid_argument("unknown argument " + argument);
    }
  }
  return out;
}

Given given_of(const std::string& json) {
  Given out;
  const nlohmann::json object = nlohmann::json::parse(json);
  for (const auto& [name, value] : object.items()) {
    const auto read = to_value(value);
    if (!read) throw std::invalid_argument(name + " is not a value");
    out.emplace_back(name, *read);
  }
  return out;
}

Numbers numbers_of(std::istream& in) {
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  Numbers out(bytes.size() / sizeof(double));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(double));
  return out;
}

template <class T>
void write(const std::vector<T>& out) {
  std::cout.write(reinterpret_cast<const char*>(out.data()),
                  static_cast<std::streamsize>(out.size() * sizeof(T)));
}

void run(int argc, char** argv) {
  if (argc < 4) throw std::invalid_argument("CODEC PARAMETERS WIDTH are missing");
  const Options options = options_of(argc, argv);
  const Index width = std::stol(argv[3]);
  const Numbers numbers = numbers_of(std::cin);
  const MadeCodec of = made(argv[1], given_of(argv[2]), width, numbers, options.tensor,
                            options.prompt, options.seed);
  const Bytes bytes = encoded(*of.codec, width, numbers);
  if (options.decode) {
    write(decoded(*of.codec, width, bytes));
  } else {
    write(bytes);
  }
}

}  // namespace
}  // namespace kvbench::test

int main(int argc, char** argv) {
  try {
    kvbench::test::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "kvbench-encode: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
