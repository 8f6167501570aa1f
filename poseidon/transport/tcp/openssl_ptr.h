// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TRANSPORT_TCP_OPENSSL_PTR_H_
#define POSEIDON_TRANSPORT_TCP_OPENSSL_PTR_H_

#include <openssl/types.h>

#include <memory>

namespace poseidon::transport::tcp {

template <auto kFree>
struct OpenSslFree {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

// Owns an object of OpenSSL's, which `kFree` ends: OpenSslPtr<SSL, SSL_free>.
template <typename T, auto kFree>
using OpenSslPtr = std::unique_ptr<T, OpenSslFree<kFree>>;

// Our own context of OpenSSL's library. What the process, another library in it or OPENSSL_CONF makes of the common one
// (providers, default properties) has no effect on it. Lives until the process ends. Thread: any.
OSSL_LIB_CTX* OwnOpenSsl();

}  // namespace poseidon::transport::tcp

#endif  // POSEIDON_TRANSPORT_TCP_OPENSSL_PTR_H_
