# SPDX-License-Identifier: Apache-2.0
# libtorch out of the installed Python wheel: target TorchWheel::TorchWheel (c10 and torch_cpu only).
# The wheel carries an old google/protobuf among its headers, so its include folder is searched
# after the system's (-idirafter): a source may then include ATen and a .pb.h of Debian's protoc.
# POSEIDON_PYTHON, which the root CMakeLists.txt sets, names the interpreter that has torch.
execute_process(
  COMMAND "${POSEIDON_PYTHON}" -E -c
    "import importlib.util as u, importlib.metadata as m; print(u.find_spec('torch').submodule_search_locations[0]); print(m.version('torch'))"
  OUTPUT_VARIABLE _torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE _torch_result)
if(_torch_result EQUAL 0)
  string(REPLACE "\n" ";" _torch "${_torch}")
  list(GET _torch 0 TorchWheel_DIR_FOUND)
  list(GET _torch 1 TorchWheel_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchWheel REQUIRED_VARS TorchWheel_DIR_FOUND
  VERSION_VAR TorchWheel_VERSION
  REASON_FAILURE_MESSAGE "${POSEIDON_PYTHON} has no torch: run 'make setup' or set POSEIDON_PYTHON")
if(TorchWheel_FOUND AND NOT TARGET TorchWheel::TorchWheel)
  add_library(TorchWheel::TorchWheel INTERFACE IMPORTED)
  target_compile_options(TorchWheel::TorchWheel INTERFACE "SHELL:-idirafter \"${TorchWheel_DIR_FOUND}/include\"")
  target_compile_definitions(TorchWheel::TorchWheel INTERFACE AT_PER_OPERATOR_HEADERS)
  target_link_libraries(TorchWheel::TorchWheel INTERFACE
    "${TorchWheel_DIR_FOUND}/lib/libtorch_cpu.so" "${TorchWheel_DIR_FOUND}/lib/libc10.so")
  if(CMAKE_BUILD_TYPE STREQUAL "Release")  # as our own files: the headers name themselves where they fail
    target_compile_options(TorchWheel::TorchWheel INTERFACE "-ffile-prefix-map=${TorchWheel_DIR_FOUND}=torch")
  endif()
  if(NOT POSEIDON_WHEEL)  # which finds torch where it is installed
    target_link_options(TorchWheel::TorchWheel INTERFACE "-Wl,-rpath,${TorchWheel_DIR_FOUND}/lib")
  endif()
endif()
