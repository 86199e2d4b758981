// Methods that keep every token and choose by the query what a row reads, written as their papers'
// codes say it, with plain loops. Answers per decode row and query head: [rows][G][dv].
#pragma once

#include <string>
#include <vector>

#include "core/stream.hpp"

namespace kvbench::test {

using Answers = std::vector<std::vector<std::vector<double>>>;

// Exact softmax over the given tokens with the given weights.
std::vector<double> weighted_answer(const Stream& stream, int g, Index row,
                                    const std::vector<Index>& tokens,
                                    const std::vector<double>& weights);

struct NaiveQuest {
  Index budget = 0;
  Index page = 16;
  bool kernel = false;
  bool group = false;
};
Answers naive_quest(const Stream& stream, Index prompt, const NaiveQuest& p);

struct NaiveSparq {
  Index rank = 0;
  Index k = 0;
  Index recent = 0;
  bool mean_value = true;
};
Answers naive_sparq(const Stream& stream, Index prompt, const NaiveSparq& p);

struct NaiveHsa {
  Index budget = 0;
  Index page = 1;
  Index rank = 0;
};
Answers naive_hsa(const Stream& stream, Index prompt, const NaiveHsa& p);

struct NaiveLoki {
  Index budget = 0;
  Index rank = 0;
  std::string basis = "pca";
  bool centre = true;
  Index label_bits = 16;
  Index recent = 0;
  bool group = false;
};
// Components by a dense eigenvalue solver of a library.
Answers naive_loki(const Stream& stream, Index prompt, const NaiveLoki& p);

}  // namespace kvbench::test
