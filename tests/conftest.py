"""For all tests: Ctrl-C is heard, also by those that a shell has put into the background.

Such a shell has its children ignore SIGINT, and so would every process that a test interrupts.
"""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
