// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_FRONTENDS_CAFFE_TRAIN_NUMBERS_H_
#define POSEIDON_FRONTENDS_CAFFE_TRAIN_NUMBERS_H_

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

// A run's numbers, for people and for files.
namespace poseidon::caffe {

// Most numbers of one output that a line shows.
inline constexpr std::size_t kMostNumbersShown = 12;

// One number as printf writes it, in less than 64 characters.
std::string NumberText(const char* format, double value);

// Those of an output: a number, or a list where it has several.
nlohmann::json NumbersJson(const std::vector<double>& numbers);

}  // namespace poseidon::caffe

#endif  // POSEIDON_FRONTENDS_CAFFE_TRAIN_NUMBERS_H_
