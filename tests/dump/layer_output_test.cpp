// The output projection, residual norms and evidence of a dump.
#include <doctest/doctest.h>

#include <limits>

#include "dump/dump.hpp"
#include "dump/small_dump.hpp"
#include "synth/synth.hpp"
#include "system/error.hpp"

using namespace kvbench;

namespace layer_output_test {

const std::string kLayer = "/sequences/text/layers/3";
const std::string kEvidence = "/sequences/text/evidence";

// Layer 3 of the small dump has 4 query heads, 12 tokens and dv = 6; 5 columns here.
void plant_wo(hid_t file) {
  replace_dataset(file, kLayer + "/wo", {4, 6, 5}, H5T_IEEE_F32LE);
  for (hsize_t h = 0; h < 4; ++h) {
    for (hsize_t k = 0; k < 6; ++k) {
      for (hsize_t c = 0; c < 5; ++c) {
        set_element(file, kLayer + "/wo", {h, k, c}, static_cast<double>(100 * h + 10 * k + c));
      }
    }
  }
}

void plant_norms(hid_t file, hsize_t count, double first = 1.0) {
  replace_dataset(file, kLayer + "/residual_norm", {count}, H5T_IEEE_F32LE);
  for (hsize_t i = 0; i < count; ++i) {
    set_element(file, kLayer + "/residual_norm", {i}, first + static_cast<double>(i));
  }
}

void plant_evidence(hid_t file, const std::vector<std::pair<int, int>>& spans,
                    const std::vector<std::int64_t>& rows) {
  replace_dataset(file, kEvidence, {spans.size(), 2}, H5T_STD_I32LE);
  for (hsize_t i = 0; i < spans.size(); ++i) {
    set_element(file, kEvidence, {i, 0}, spans[i].first);
    set_element(file, kEvidence, {i, 1}, spans[i].second);
  }
  if (rows.empty()) return;
  const hdf5::Handle dataset = hdf5::open_dataset(file, kEvidence);
  const hsize_t count = rows.size();
  const hdf5::Handle space(H5Screate_simple(1, &count, nullptr));
  const hdf5::Handle attribute(
      H5Acreate2(dataset.get(), "rows", H5T_STD_I32LE, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  hdf5::check(H5Awrite(attribute.get(), H5T_NATIVE_INT64, rows.data()));
}

// A small dump after `change`, opened.
Dump changed(const TemporaryFolder& folder, const std::function<void(hid_t)>& change) {
  const std::string path = folder.file("small.h5");
  write_small_dump(path);
  edit(path, change);
  return Dump(path);
}

TEST_CASE("the output projection is read by query head, the residual norms as they are") {
  const TemporaryFolder folder;
  const Dump dump = changed(folder, [](hid_t f) {
    plant_wo(f);
    plant_norms(f, 7);
  });
  const LayerInfo* layer = dump.info().sequences.at(0).find_layer(3);
  CHECK(layer->hidden == 5);
  CHECK(layer->residual_rows == 7);
  const UnfilledDoubles wo = dump.read_wo("text", 3, 2);
  REQUIRE(wo.size() == 30);
  for (std::size_t k = 0; k < 6; ++k) {
    for (std::size_t c = 0; c < 5; ++c) {
      CHECK(wo[5 * k + c] == static_cast<double>(200 + 10 * k + c));
    }
  }
  const auto stream = dump.read_stream("text", 3, 1);
  CHECK(stream->stream.shape.hidden == 5);
  REQUIRE(stream->stream.shape.heads_per_kv == 2);
  CHECK(stream->stream.output_projection(0) == wo);
  CHECK(dump.read_residual_norms("text", 3) == std::vector<double>{1, 2, 3, 4, 5, 6, 7});
  const LayerInfo* other = dump.info().sequences.at(0).find_layer(1);
  CHECK(other->hidden == 0);
  CHECK(!dump.read_stream("text", 1, 0)->stream.output_projection);
  CHECK(dump.read_residual_norms("text", 1).empty());
  CHECK_THROWS_AS(dump.read_wo("text", 1, 0), InputError);
  CHECK_THROWS_AS(dump.read_wo("text", 3, 4), InputError);
}

TEST_CASE("evidence is sorted, and its rows are each listed once") {
  const TemporaryFolder folder;
  const Dump dump =
      changed(folder, [](hid_t f) { plant_evidence(f, {{7, 9}, {0, 2}, {5, 5}}, {11, 10, 11}); });
  const auto evidence = dump.info().sequences.at(0).evidence;
  REQUIRE(evidence);
  CHECK(*evidence == Evidence{{{0, 2}, {5, 5}, {7, 9}}, {10, 11}});
  CHECK(evidence->tokens() == 7);
}

TEST_CASE("elements that are not finite are found with their place") {
  const TemporaryFolder folder;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Dump dump = changed(folder, [&](hid_t f) {
    plant_wo(f);
    set_element(f, kLayer + "/wo", {2, 4, 1}, nan);
  });
  CHECK(says(errors_of([&] { dump.read_wo("text", 3, 2); }),
             {kLayer + "/wo", "head 2, row 4", "element 1 is NaN"}));
  CHECK(dump.read_wo("text", 3, 1).size() == 30);
  // Norms are read with the structure.
  for (const double first : {-1.0, nan}) {
    const TemporaryFolder other;
    const auto plant = [&](hid_t f) { plant_norms(f, 3, first); };
    CHECK(says(errors_of([&] { changed(other, plant); }),
               {kLayer + "/residual_norm", "element 0 is"}));
  }
}

TEST_CASE("a synthetic dump has what was asked for") {
  const TemporaryFolder folder;
  SynthOptions options;
  options.kind = "gaussian";
  options.tokens = 16;
  options.layers = 2;
  options.d = 4;
  options.query_rows = 8;
  options.hidden = 12;
  options.evidence = {2, 3, 9, 9};
  synthesize(options, folder.file("a.h5"));
  const Dump dump(folder.file("a.h5"));
  const SequenceInfo& sequence = dump.info().sequences.at(0);
  CHECK(*sequence.evidence == Evidence{{{2, 3}, {9, 9}}, {15}});
  for (const LayerInfo& layer : sequence.layers) {
    CHECK(layer.hidden == 12);
    CHECK(layer.residual_rows == 8);
    double squares = 0.0;
    for (int h = 0; h < 4; ++h) {
      for (const double w : dump.read_wo("0", layer.index, h)) squares += w * w;
    }
    CHECK(squares / 12.0 == doctest::Approx(1.0).epsilon(0.5));  // columns of norm about 1
  }
  CHECK(dump.read_wo("0", 0, 0) != dump.read_wo("0", 1, 0));
  options.evidence = {5, 4, 3};
  CHECK(errors_of([&] { synthesize(options, folder.file("b.h5")); }).size() == 2);
}

}  // namespace layer_output_test
