// SPDX-License-Identifier: Apache-2.0
// Nothing: the headers that targets share are compiled with it (poseidon_precompile in cmake/Poseidon.cmake).
