// SPDX-License-Identifier: Apache-2.0
// C's streams under the names that the archives of HDF5 have for them in a wheel's library: its code takes their addresses as
// only a program can (frontends/caffe/proto/CMakeLists.txt).
#include <cstdio>

extern "C" {

std::FILE* poseidon_stdin = nullptr;
std::FILE* poseidon_stdout = nullptr;
std::FILE* poseidon_stderr = nullptr;

__attribute__((constructor)) static void FindStreams() {
  poseidon_stdin = stdin;
  poseidon_stdout = stdout;
  poseidon_stderr = stderr;
}
}
