# SPDX-License-Identifier: Apache-2.0
"""Writes C++ that holds every profile, for `poseidon plan NAME` (tools/profile/published.h), into the file that is named."""
import pathlib
import sys

from .architectures import ARCHITECTURES
from .timing import profile, text_of

LONGEST = 30000  # of one literal; compilers need not take more than 65536


def literals(text):
    """An expression for `text`."""
    parts = [text[at:at + LONGEST] for at in range(0, len(text), LONGEST)]
    return " + ".join(f'std::string(R"json({part})json")' for part in parts)


rows = "\n".join(f'    {{"{name}", {literals(text_of(profile(name)))}}},' for name in ARCHITECTURES)
pathlib.Path(sys.argv[1]).write_text(f"""#include "tools/profile/published.h"

namespace poseidon::profile {{

const std::vector<Published>& PublishedProfiles() {{
  static const std::vector<Published> all = {{
{rows}
  }};
  return all;
}}

}}  // namespace poseidon::profile
""")
