// SPDX-License-Identifier: Apache-2.0
// C's streams under the names that archives have for them in a wheel's library: their code takes the addresses as only a program
// can (poseidon_archives_for_library in cmake/Poseidon.cmake).
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
