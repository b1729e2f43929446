"""The time at which this process loaded the package: sources modified later may differ from the code that runs."""

import time

AT = time.time()
