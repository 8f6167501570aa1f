# SPDX-License-Identifier: Apache-2.0
"""Writes C++ that holds every profile, for `poseidon plan NAME` (tools/profile/published.h), into the file that is named."""
import pathlib
import sys

from .architectures import ARCHITECTURES
from .timing import profile, text_of

rows = "\n".join(f'    {{"{name}", R"json({text_of(profile(name))})json"}},' for name in ARCHITECTURES)
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
