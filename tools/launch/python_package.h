// SPDX-License-Identifier: Apache-2.0
#ifndef POSEIDON_TOOLS_LAUNCH_PYTHON_PACKAGE_H_
#define POSEIDON_TOOLS_LAUNCH_PYTHON_PACKAGE_H_

#include <string>

namespace poseidon::launch {

// Prepares this process's environment for a Python that it becomes or starts: PYTHONPATH finds the package beside this program
// and POSEIDON_PROGRAM names this program. Returns the interpreter: that of the checkout in which this program was built, or the
// one whose package contains it (POSEIDON_PYTHON), else "python3".
// Thread: the only one that uses the environment meanwhile.
std::string ShowPythonOurPackage();

}  // namespace poseidon::launch

#endif  // POSEIDON_TOOLS_LAUNCH_PYTHON_PACKAGE_H_
