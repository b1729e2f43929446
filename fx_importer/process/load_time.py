"""When this process began to read the package's sources: what is newer may not be what runs."""

import time

AT = time.time()
