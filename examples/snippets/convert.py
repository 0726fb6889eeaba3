"""Convert the links of the arguments with the Python client: python convert.py LINK…

SMARTLINKD_URL and SMARTLINKD_KEY_FILE name the daemon and the file with a key of the scope convert.
"""

import os
import sys
from pathlib import Path

from smartlinkd.client import ClientError, Smartlinkd

key = Path(os.environ["SMARTLINKD_KEY_FILE"]).read_text(encoding="utf-8").strip()
try:
    with Smartlinkd(os.environ["SMARTLINKD_URL"], key) as daemon:
        for link, entry in daemon.convert(sys.argv[1:], sub_ids=["python"]):
            print(link, entry.short_link if entry.fail_code == 0 else f"failed: {entry.fail_code}")
except ClientError as error:
    sys.exit(str(error))
