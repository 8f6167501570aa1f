# SPDX-License-Identifier: Apache-2.0
# The few functions with which every folder declares itself: one library and one test executable
# per folder, warnings as errors in our own code, sanitizers by one word.
include_guard(GLOBAL)

add_library(poseidon_warnings INTERFACE)
target_compile_options(poseidon_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  # Designated initialisers name what differs from the default; the rest is meant.
  -Wno-missing-field-initializers -Werror
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Wold-style-cast -Woverloaded-virtual>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety>)  # poseidon/base/mutex.h
# GCC 12 at -O3 sees an overlap in every `"literal" + string` (GCC bug 105651), and
# at every level an uninitialised alternative when a std::variant is moved (GCC bug 105562).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(poseidon_warnings INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
endif()
# Where sources are joined, GCC takes them for headers, in which a type of an anonymous namespace is a mistake. What is
# precompiled it does not take for the system's headers, in which it would leave out what it suspects of every `"literal" + string`.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_UNITY_BUILD)
  target_compile_options(poseidon_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
endif()

add_library(poseidon_flags INTERFACE)
target_include_directories(poseidon_flags INTERFACE "${PROJECT_SOURCE_DIR}")
target_link_libraries(poseidon_flags INTERFACE Threads::Threads)
target_compile_options(poseidon_flags INTERFACE -fstack-protector-strong -fvisibility=hidden
                                                $<$<CXX_COMPILER_ID:GNU>:-ffp-contract=off>
                                                $<$<CXX_COMPILER_ID:Clang>:-ffp-contract=off>)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  # A wheel leaves out what nobody calls, and the same sources give it the same bytes in every folder (ccache may make a
  # source's path relative). Every release build is compiled so: wheels then find its object files in ccache.
  file(RELATIVE_PATH from_build "${PROJECT_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
  string(REGEX REPLACE "/$" "" from_build "${from_build}")
  target_compile_options(poseidon_flags INTERFACE -ffunction-sections -fdata-sections
                                                  "-ffile-prefix-map=${PROJECT_SOURCE_DIR}=."
                                                  "-ffile-prefix-map=${from_build}=.")
endif()
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  # POSEIDON_THREAD_CHECKS: entries assert their executor (poseidon/base/check.h).
  target_compile_definitions(poseidon_flags INTERFACE _GLIBCXX_ASSERTIONS POSEIDON_THREAD_CHECKS)
endif()
if(POSEIDON_SANITIZE STREQUAL "address")
  set(_sanitize -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    list(APPEND _sanitize -D__SANITIZE_ADDRESS__=1)  # which GCC defines itself
  endif()
elseif(POSEIDON_SANITIZE STREQUAL "thread")
  set(_sanitize -fsanitize=thread -fno-omit-frame-pointer)
elseif(POSEIDON_SANITIZE)
  message(FATAL_ERROR "POSEIDON_SANITIZE is '${POSEIDON_SANITIZE}', expected address, thread or empty")
endif()
if(POSEIDON_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "POSEIDON_FUZZ needs clang, the compiler is ${CMAKE_CXX_COMPILER_ID}; use the preset 'asan'")
  endif()
  list(APPEND _sanitize -fsanitize=fuzzer-no-link)
endif()
if(POSEIDON_SANITIZE)
  target_compile_options(poseidon_flags INTERFACE ${_sanitize} -g1)
  # A program of C that links our library needs UBSan's runtime for C++.
  target_link_options(poseidon_flags INTERFACE ${_sanitize} $<$<LINK_LANG_AND_ID:C,Clang>:-fsanitize-link-c++-runtime>)
  target_link_libraries(poseidon_flags INTERFACE $<$<LINK_LANG_AND_ID:C,Clang>:stdc++>)
endif()

# The compiler takes much of its time for tests, which do not need to be fast.
set(test_optimization)
if(POSEIDON_SANITIZE)
  set(test_optimization -O0)
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  set(test_optimization -O1)
endif()

# In a folder whose programs need not be fast where a sanitizer looks at them: compiling takes half of the time then.
macro(poseidon_not_optimized_when_sanitized)
  if(POSEIDON_SANITIZE)
    add_compile_options(-O0)
  endif()
endmacro()

# One more label of tests that take minutes under sanitizers and show the least there.
set(slow_when_sanitized)
if(POSEIDON_SANITIZE)
  set(slow_when_sanitized slow)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # A precompiled header counts by its content (see poseidon_precompile); none of its sources uses __TIME__.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros "${CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${CCACHE}")
endif()

# poseidon_precompile(target [TEST])
# gives the sources of a target, where the preset joins them, the headers of others that most of them include, parsed once for
# all targets that are compiled alike: reading these is half of what a compiler does. Headers of our own are not among them,
# so that a change recompiles what it concerns.
set(standard_headers <algorithm> <array> <chrono> <condition_variable> <cstdint> <cstring> <deque> <filesystem> <fstream>
                     <functional> <future> <map> <memory> <mutex> <optional> <random> <set> <span> <sstream> <string>
                     <string_view> <thread> <utility> <variant> <vector>)
set(test_headers <gmock/gmock.h> <gtest/gtest.h>)
set(torch_headers <ATen/Parallel.h> <ATen/core/Tensor.h> <ATen/ops/empty.h> <ATen/ops/mul.h>)
function(poseidon_precompile target)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  set(kind standard)
  set(headers ${standard_headers})
  set(link)
  set(options)
  get_directory_property(own COMPILE_OPTIONS)  # which the headers have by being here
  if(own)
    string(MAKE_C_IDENTIFIER "${own}" own)
    string(APPEND kind "${own}")
  endif()
  if("TEST" IN_LIST ARGN)
    string(APPEND kind _test)
    list(APPEND headers ${test_headers})
    list(APPEND link GTest::gmock)
    list(APPEND options -fPIE ${test_optimization})
  endif()
  poseidon_links(${target} TorchWheel::TorchWheel with_torch)
  if(with_torch)
    string(APPEND kind _torch)
    list(APPEND headers ${torch_headers})
    list(APPEND link TorchWheel::TorchWheel)
  endif()
  if(NOT TARGET headers_${kind})
    add_library(headers_${kind} OBJECT "${PROJECT_SOURCE_DIR}/cmake/headers.cc")
    set_target_properties(headers_${kind} PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(headers_${kind} PRIVATE poseidon_warnings poseidon_flags ${link})
    target_compile_options(headers_${kind} PRIVATE ${options})
    target_precompile_headers(headers_${kind} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM headers_${kind})
endfunction()

# poseidon_options(target option...): compiler options of its own, with which headers that were compiled without them do not go.
function(poseidon_options target)
  target_compile_options(${target} PRIVATE ${ARGN})
  set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
endfunction()

# poseidon_links(target library result): whether a target links a library, itself or through others.
function(poseidon_links target library result)
  set(seen ${target})
  set(next ${target})
  while(next)
    list(POP_FRONT next one)
    foreach(property LINK_LIBRARIES INTERFACE_LINK_LIBRARIES)
      get_target_property(linked ${one} ${property})
      foreach(other IN LISTS linked)
        if(TARGET "${other}" AND NOT other IN_LIST seen)
          list(APPEND seen "${other}")
          list(APPEND next "${other}")
        endif()
      endforeach()
    endforeach()
  endwhile()
  if(library IN_LIST seen)
    set(${result} TRUE PARENT_SCOPE)
  else()
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

# poseidon_library(name SOURCES a.cc b.cc DEPS base tensor LINK OpenSSL::Crypto SYSTEM_INCLUDES dir)
# makes target poseidon_<name>. DEPS are folder names on lower rungs; LINK are foreign targets.
function(poseidon_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LINK" ${ARGN})
  set(target poseidon_${name})
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE poseidon_warnings)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_link_libraries(${target} ${scope} poseidon_flags)
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${target} ${scope} poseidon_${dep})
  endforeach()
  if(ARG_LINK)
    target_link_libraries(${target} ${scope} ${ARG_LINK})
  endif()
  if(ARG_SOURCES)
    poseidon_precompile(${target})
  endif()
endfunction()

# Tests that load the machine for a minute and longer.
set(busy_tests torch torch_ecosystem tensorflow tensorflow_oldest keras_torch wheel guides annotations process_train process_resume
    process_bad_input process_compat process_mutations process_launchers process_security plan_command levels core exactness
    verdict_sweep simulated_cluster plan caffe_solver)

# poseidon_when_quiet(name): has a test run after those, two at a time. For deadlines of tests that wait for the most part.
function(poseidon_when_quiet name)
  set_tests_properties(${name} PROPERTIES RUN_SERIAL OFF DEPENDS "${busy_tests}")
endfunction()

# poseidon_test(name SOURCES ... DEPS ... LINK ... LABELS unit TIMEOUT 60 COST 100 ARGS ... [ALONE])
# makes the GoogleTest executable <name>_test and one ctest entry of that name. Tests run side by side, but for those that
# are ALONE: short deadlines are what they test. COST: what takes longest begins first, about in seconds under a sanitizer.
function(poseidon_test name)
  if(NOT POSEIDON_TESTS OR (POSEIDON_ONLY_TEST AND NOT name STREQUAL POSEIDON_ONLY_TEST))
    return()
  endif()
  cmake_parse_arguments(ARG "ALONE" "TIMEOUT;COST" "SOURCES;DEPS;LINK;LABELS;ARGS" ${ARGN})
  set(target ${name}_test)
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE poseidon_warnings poseidon_flags GTest::gmock GTest::gtest_main)
  target_compile_options(${target} PRIVATE ${test_optimization})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${target} PRIVATE poseidon_${dep})
  endforeach()
  if(ARG_LINK)
    target_link_libraries(${target} PRIVATE ${ARG_LINK})
  endif()
  poseidon_precompile(${target} TEST)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${target} ${ARG_ARGS})
  math(EXPR timeout "${ARG_TIMEOUT} * ${POSEIDON_TIMEOUT_FACTOR}")
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${timeout})
  if(ARG_COST)
    set_tests_properties(${name} PROPERTIES COST ${ARG_COST})
  endif()
  if(ARG_ALONE)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# poseidon_pytest(name LABELS process TIMEOUT 600 COST 200 ENVIRONMENT A=b... ARGS -k "name or name")
# makes the pytest files of this folder one ctest entry, or those of their cases that ARGS choose. Not under sanitizers, whose
# runtimes have to be the first library in a foreign interpreter (tests/torch/CMakeLists.txt has one that is). COST: where it comes among those that run side by side,
# the highest first.
function(poseidon_pytest name)
  if(NOT POSEIDON_TESTS OR POSEIDON_SANITIZE)
    return()
  endif()
  cmake_parse_arguments(ARG "" "TIMEOUT;COST" "LABELS;ENVIRONMENT;ARGS" ${ARGN})
  add_test(NAME ${name}
    COMMAND ${POSEIDON_PYTEST} --rootdir "${CMAKE_CURRENT_SOURCE_DIR}" ${ARG_ARGS} "${CMAKE_CURRENT_SOURCE_DIR}")
  math(EXPR timeout "${ARG_TIMEOUT} * ${POSEIDON_TIMEOUT_FACTOR}")
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${timeout} COST ${ARG_COST}
    ENVIRONMENT "POSEIDON_TIMEOUT_FACTOR=${POSEIDON_TIMEOUT_FACTOR};${ARG_ENVIRONMENT}")
endfunction()

# poseidon_unittest(name module)
# makes a module of Python's unittest one ctest entry.
function(poseidon_unittest name module)
  if(NOT POSEIDON_TESTS)
    return()
  endif()
  add_test(NAME ${name} COMMAND "${POSEIDON_PYTHON}" -B -m unittest -q ${module} WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  math(EXPR timeout "60 * ${POSEIDON_TIMEOUT_FACTOR}")
  set_tests_properties(${name} PROPERTIES LABELS "unit;python" TIMEOUT ${timeout})
endfunction()

# poseidon_fuzz(name SOURCES ... DEPS ... LINK ... CORPUS folder)
# makes the libFuzzer executable <name>_fuzz and one ctest entry <name>_fuzz with label fuzz, which
# runs POSEIDON_FUZZ_RUNS inputs (environment, default 100000) from a fixed seed; CORPUS is a
# folder of first inputs, only read.
function(poseidon_fuzz name)
  if(NOT POSEIDON_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;DEPS;LINK" ${ARGN})
  set(target ${name}_fuzz)
  add_executable(${target} ${ARG_SOURCES})
  if(NOT TARGET fuzz_targets)
    add_custom_target(fuzz_targets)
  endif()
  add_dependencies(fuzz_targets ${target})
  target_link_libraries(${target} PRIVATE poseidon_warnings poseidon_flags ${ARG_LINK})
  target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${target} PRIVATE poseidon_${dep})
  endforeach()
  set(corpus "${CMAKE_CURRENT_BINARY_DIR}/${target}.corpus")
  file(MAKE_DIRECTORY "${corpus}")
  if(ARG_CORPUS)
    cmake_path(ABSOLUTE_PATH ARG_CORPUS BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE seeds)
  endif()
  add_test(NAME ${target} WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}"
    COMMAND sh -c "exec \"$0\" -runs=\"\${POSEIDON_FUZZ_RUNS:-100000}\" -seed=1 -max_len=4096 -print_final_stats=1 \"$@\""
            $<TARGET_FILE:${target}> "${corpus}" ${seeds})
  math(EXPR timeout "600 * ${POSEIDON_TIMEOUT_FACTOR}")
  set_tests_properties(${target} PROPERTIES LABELS fuzz TIMEOUT ${timeout})
endfunction()

# poseidon_licenses(folder component openssl=libssl-dev ...)
# installs the licence texts of what is inside a wheel, each from the Debian package that brought it, into folder/licenses.
function(poseidon_licenses folder component)
  foreach(named IN LISTS ARGN)
    string(REPLACE "=" ";" named "${named}")
    list(POP_FRONT named library package)
    install(FILES "/usr/share/doc/${package}/copyright" DESTINATION "${folder}/licenses" RENAME "${library}.txt"
            COMPONENT "${component}")
  endforeach()
endfunction()

# poseidon_archives_for_library(archives hdf5 hdf5::hdf5_hl hdf5::hdf5)
# sets the variable to copies of the targets' archives that a library may have inside, which the target poseidon_<name>_archives makes.
# Debian's archives find C's streams as programs alone can; in the copies these have other names, which frontends/caffe/c/streams.cc
# brings.
function(poseidon_archives_for_library variable name)
  set(streams --redefine-sym stdin=poseidon_stdin --redefine-sym stdout=poseidon_stdout --redefine-sym stderr=poseidon_stderr)
  set(archives)
  foreach(target ${ARGN})
    string(REGEX REPLACE ".*::" "" part "${target}")
    set(archive "${CMAKE_CURRENT_BINARY_DIR}/lib${part}_shared.a")
    add_custom_command(OUTPUT "${archive}" COMMAND "${CMAKE_OBJCOPY}" ${streams} "$<TARGET_FILE:${target}>" "${archive}" VERBATIM)
    list(APPEND archives "${archive}")
  endforeach()
  add_custom_target(poseidon_${name}_archives DEPENDS ${archives})
  set(${variable} "${archives}" PARENT_SCOPE)
endfunction()
