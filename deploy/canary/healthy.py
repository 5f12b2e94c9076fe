"""Whether the canary of the stack is well: one was committed lately, as the exporter tells.

python healthy.py SECONDS
"""

import re
import sys
import time
from urllib.request import urlopen

URL = "http://exporter:9464/metrics"
LAST = re.compile(r"^tallystick_canary_last_committed_timestamp_seconds (\S+)$", re.MULTILINE)

if __name__ == "__main__":
    with urlopen(URL, timeout=5) as answer:
        found = LAST.search(answer.read().decode())
    age = time.time() - float(found[1]) if found else float("inf")
    print(f"the last canary was committed {age:.0f} s ago")
    sys.exit(age > float(sys.argv[1]))
