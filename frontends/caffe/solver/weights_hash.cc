// SPDX-License-Identifier: Apache-2.0
#include "frontends/caffe/solver/weights_hash.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <span>

#include "frontends/caffe/net/placement.h"
#include "poseidon/base/bytes.h"
#include "poseidon/base/check.h"

namespace poseidon::caffe {
namespace {

static_assert(std::endian::native == std::endian::little,
              "floats are hashed as memory has them");

struct FreeDigest {
  void operator()(EVP_MD_CTX* digest) const { EVP_MD_CTX_free(digest); }
};

void Add(EVP_MD_CTX* digest, const at::Tensor& numbers) {
  const at::Tensor blob = OnHost(numbers);
  const auto count = static_cast<std::size_t>(blob.numel());
  if (blob.scalar_type() == at::kFloat) {
    EVP_DigestUpdate(digest, blob.const_data_ptr<float>(), count * sizeof(float));
    return;
  }
  std::array<float, 1024> block;
  const double* from = blob.const_data_ptr<double>();
  for (std::size_t begin = 0; begin < count; begin += block.size()) {
    const std::size_t size = std::min(block.size(), count - begin);
    for (std::size_t i = 0; i < size; ++i) block[i] = static_cast<float>(from[begin + i]);
    EVP_DigestUpdate(digest, block.data(), size * sizeof(float));
  }
}

}  // namespace

std::string WeightsHash(const Net& net) {
  const std::unique_ptr<EVP_MD_CTX, FreeDigest> digest(EVP_MD_CTX_new());
  POSEIDON_CHECK(digest != nullptr && EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr) == 1,
                 "OpenSSL has no SHA-256");
  for (const LearnableParam& param : net.learnable_params()) {
    if (!param.statistics) Add(digest.get(), param.blob.data);
  }
  std::array<std::byte, 32> hash{};
  unsigned size = 0;
  EVP_DigestFinal_ex(digest.get(), reinterpret_cast<unsigned char*>(hash.data()), &size);
  return ToHex(hash);
}

}  // namespace poseidon::caffe
